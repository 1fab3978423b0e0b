"""What the images that set-up builds are like, seen from inside a container."""

import json
import subprocess
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

pytestmark = pytest.mark.integration
LABEL = "dev.flashruntime.owner=flashruntime"
RUNTIME = "flashruntime/runtime:local"
HELPER = "flashruntime/helper:local"
TOXIPROXY = "flashruntime/toxiproxy:local"


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def run(image: str, *command: str) -> str:
    confined = ("--read-only", "--tmpfs", "/tmp", "--network", "none", "--cap-drop", "ALL")
    return docker("run", "--rm", "--label", LABEL, *confined, image, *command)


def test_the_runtime_works_unprivileged_on_a_read_only_root() -> None:
    code = (
        "import os, torch, sklearn, flashruntime;"
        "x = torch.ones(2, 2) @ torch.ones(2, 2);"
        "open('/tmp/proof', 'w').close();"
        "print(os.getuid(), torch.cuda.is_available(), x.sum().item())"
    )
    assert run(RUNTIME, "python", "-c", code) == "10001 False 8.0"


def test_the_runtime_holds_the_cpu_build_and_no_bundle() -> None:
    code = (
        "import os, torch;"
        "print(torch.version.cuda, torch.distributed.is_gloo_available(),"
        " os.path.exists('/run/secrets/ca_bundle'))"
    )
    assert run(RUNTIME, "python", "-c", code) == "None True False"


def test_the_data_directories_belong_to_the_runtimes_user() -> None:
    folders = [
        f"/var/lib/flashruntime/{name}" for name in ("ledger", "artifacts", "checkpoints", "work")
    ]
    assert set(run(RUNTIME, "stat", "-c", "%u:%g %a", *folders).splitlines()) == {"10001:10001 750"}


def test_the_helper_has_each_tool_that_faults_need() -> None:
    tools = ("strace", "iptables", "ip6tables", "mkfs.ext4", "python3", "ps")
    library = "/usr/lib/*/faketime/libfaketime.so.1"
    found = run(HELPER, "sh", "-c", f"which {' '.join(tools)} && ls {library}").splitlines()
    assert len(found) == len(tools) + 1


@pytest.fixture
def toxiproxy() -> Iterator[str]:
    container = docker(
        "run", "--detach", "--label", LABEL, "--read-only", "--cap-drop", "ALL",
        "--publish", "127.0.0.1::8474", TOXIPROXY,
    )  # fmt: skip
    try:
        yield container
    finally:
        docker("rm", "--force", "--volumes", container)


def listeners(container: str) -> set[str]:
    """Polls the API, which is up some milliseconds after the container."""
    address = docker("port", container, "8474").splitlines()[0]
    docker("exec", container, "/toxiproxy", "-version")
    for _ in range(50):
        try:
            with urlopen(f"http://{address}/proxies", timeout=5) as answer:
                return set(json.load(answer))
        except OSError:
            docker("inspect", container)
    raise AssertionError(docker("logs", container))


def test_a_restarted_toxiproxy_has_its_listeners_again(toxiproxy: str) -> None:
    expected = {f"worker-{n}" for n in range(1, 9)} | {"clients"}
    assert listeners(toxiproxy) == expected
    docker("restart", "--time", "1", toxiproxy)
    assert listeners(toxiproxy) == expected


def test_toxiproxy_is_the_pinned_version_and_not_root(toxiproxy: str) -> None:
    assert "2.12.0" in docker("exec", toxiproxy, "/toxiproxy", "-version")
    assert docker("inspect", "--format", "{{.Config.User}}", toxiproxy) == "10001:10001"
