"""Launching: one process with its whole tree."""
