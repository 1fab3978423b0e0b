"""Wire models: what the coordinator, its workers and its clients say to one another."""
