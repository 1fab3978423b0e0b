"""The worker agent: claims tasks, runs them, and reports their results."""
