"""Adapters that build workloads by the conventions of a framework, without importing it."""
