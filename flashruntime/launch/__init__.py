"""Launching: one process with its whole tree, its environment, and how it ended."""
