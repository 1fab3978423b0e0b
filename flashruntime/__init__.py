"""A fault-tolerant runtime for ML training jobs."""
