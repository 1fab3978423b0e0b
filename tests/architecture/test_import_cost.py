"""What importing the public package costs and exposes."""

import subprocess
import sys

HEAVY = {"torch", "fastapi", "uvicorn", "httpx", "docker", "numpy", "starlette", "requests"}


def test_importing_flashruntime_loads_only_pydantic_and_the_standard_library() -> None:
    code = "import flashruntime, sys; print('\\n'.join(sorted(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert HEAVY.isdisjoint(loaded)


def test_exported_names_exist_and_are_sorted() -> None:
    import flashruntime

    exported = list(getattr(flashruntime, "__all__", []))
    assert exported == sorted(exported)
    for name in exported:
        assert hasattr(flashruntime, name)


def test_using_the_public_names_needs_only_pydantic() -> None:
    code = (
        "import flashruntime, sys; [getattr(flashruntime, n) for n in flashruntime.__all__]; "
        "print('\\n'.join(sorted(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert HEAVY.isdisjoint(loaded)
