"""Invariants, one file each."""
