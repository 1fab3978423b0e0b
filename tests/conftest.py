"""Settings of all tests: how long an example takes is for benchmarks, not for property tests."""

from hypothesis import settings

settings.register_profile("whole", deadline=None)
settings.register_profile("brief", deadline=None, max_examples=25)
settings.load_profile("whole")
