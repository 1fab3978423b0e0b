"""Faults, one file each."""
