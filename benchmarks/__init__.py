"""The benchmark suite."""
