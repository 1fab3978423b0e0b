"""What flashruntime is compared with, run for real."""
