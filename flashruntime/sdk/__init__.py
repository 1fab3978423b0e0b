"""The local SDK: what to run, the run, its record, and what drives it."""
