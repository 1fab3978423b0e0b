"""Checkpoints: parts first, manifest last, verified before use."""
