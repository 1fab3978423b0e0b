"""Scripts that run inside the worker image."""
