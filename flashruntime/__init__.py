"""flashruntime: a fault-tolerant runtime for ML training jobs."""

__version__ = "0.1.0"
__all__ = ["__version__"]
