"""The chaos harness: faults that provably land, and judges of what followed."""
