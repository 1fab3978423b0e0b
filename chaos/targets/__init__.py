"""Adapters: the only files that touch Docker, Toxiproxy and HTTP."""
