"""Recovery: from evidence to a failure class to an action."""
