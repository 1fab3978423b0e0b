"""Makes the fixtures and options of the chaos harness known to pytest, wherever it is started."""

pytest_plugins = ["chaos.pytest_plugin"]
