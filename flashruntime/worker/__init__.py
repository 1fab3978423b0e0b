"""The worker agent."""
