"""Leases: the time-limited, fenced right to run an attempt."""
