"""The coordinator's HTTP service."""
