"""Experiments, one EXPERIMENT a file."""
