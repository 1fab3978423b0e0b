"""Settings of all tests: how long an example takes is for benchmarks, not for property tests."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
