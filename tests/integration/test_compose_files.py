"""What the composed stack and its chaos override promise, as compose itself reads them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
PLAIN = ("compose.yaml",)
CHAOS = ("compose.yaml", "docker/compose.chaos.yaml")
WORKERS = [f"worker-{n}" for n in range(1, 9)]
OWNER = "dev.flashruntime.owner"
RUN = "dev.flashruntime.run"


def config(files: tuple[str, ...], **environment: str) -> dict[str, Any]:
    arguments = [part for file in files for part in ("-f", file)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLASHML_")}
    done = subprocess.run(
        ["docker", "compose", "--env-file", "/dev/null", *arguments, "config", "--format", "json"],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def chaos() -> dict[str, Any]:
    return config(CHAOS, FLASHML_RUN_ID="run-7", FLASHML_CLIENTS_PORT="18100")


def test_every_service_is_confined() -> None:
    """Non-root, read-only, no capabilities, bounded memory, processes and logs."""
    for files in (PLAIN, CHAOS):
        for name, service in config(files)["services"].items():
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"], name
            assert "no-new-privileges:true" in service["security_opt"], name
            assert int(service["mem_limit"]) > 0, name
            assert int(service["pids_limit"]) > 0, name
            assert "max-size" in service["logging"]["options"], name
            assert "privileged" not in service, name
            if name != "toxiproxy":
                assert service["user"] == "10001:10001", name


def test_ports_are_published_on_loopback_only() -> None:
    published = [
        port
        for files in (PLAIN, CHAOS)
        for service in config(files)["services"].values()
        for port in service.get("ports", [])
    ]
    assert len(published) == 4
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


def test_workers_of_the_chaos_stack_start_cold_unless_asked_for_otherwise() -> None:
    """One machine carries them all: interpreters made ready ahead would slow what is watched."""
    for given, told in (({}, "off"), ({"FLASHML_WARM_START": "on"}, "on")):
        services = config(CHAOS, **given)["services"]
        found = {services[name]["environment"]["FLASHML_WARM_START"] for name in WORKERS}
        assert found == {told}


def test_use_without_tokens_is_said_in_plain_sight_and_the_names_are_known() -> None:
    """Workers reach the coordinator by the name of its service, or of the proxy before it."""
    for files, names in ((PLAIN, {"coordinator"}), (CHAOS, {"coordinator", "toxiproxy"})):
        services = config(files)["services"]
        environment = services["coordinator"]["environment"]
        assert environment["FLASHML_ALLOW_OPEN"] == "1"
        allowed = set(environment["FLASHML_ALLOWED_HOSTS"].split(","))
        assert allowed == names
        started = {name for name in services if name.startswith("worker-")} or {"worker"}
        for name in started:
            url = services[name]["environment"]["FLASHML_COORDINATOR_URL"]
            assert urlsplit(url).hostname in allowed, name


def test_one_variable_closes_the_stack_and_never_that_of_a_chaos_run() -> None:
    for files, expected in ((PLAIN, "x" * 40), (CHAOS, "")):
        services = config(files, FLASHML_TOKEN="x" * 40)["services"]
        used = {"coordinator", "worker-1" if files is CHAOS else "worker"}
        assert {services[name]["environment"]["FLASHML_TOKEN"] for name in used} == {expected}


def test_a_worker_waits_for_a_healthy_coordinator_and_has_time_for_its_notice() -> None:
    services = config(PLAIN)["services"]
    worker = services["worker"]
    assert worker["depends_on"]["coordinator"]["condition"] == "service_healthy"
    assert float(worker["environment"]["FLASHML_NOTICE_S"]) < float(
        worker["stop_grace_period"].removesuffix("s")
    )
    assert "container_name" not in worker
    assert "start_interval" not in services["coordinator"]["healthcheck"]


def test_chaos_workers_share_no_network_with_the_coordinator(chaos: dict[str, Any]) -> None:
    services = chaos["services"]
    of_coordinator = set(services["coordinator"]["networks"])
    assert of_coordinator == {"control"}
    assert set(services["toxiproxy"]["networks"]) == {"control", "edge"}
    for name in WORKERS:
        assert set(services[name]["networks"]) == {"edge"}, name
    assert chaos["networks"]["edge"]["internal"] is True


def test_each_party_has_a_listener_of_its_own(chaos: dict[str, Any]) -> None:
    listeners = json.loads((ROOT / "docker/toxiproxy/proxies.json").read_text())
    port_of = {proxy["name"]: proxy["listen"].rpartition(":")[2] for proxy in listeners}
    assert {proxy["upstream"] for proxy in listeners} == {"coordinator:8000"}
    assert len(set(port_of.values())) == len(listeners)
    for name in WORKERS:
        url = chaos["services"][name]["environment"]["FLASHML_COORDINATOR_URL"]
        assert url == f"http://toxiproxy:{port_of[name]}", name
        assert chaos["services"][name]["environment"]["FLASHML_NODE_ID"] == name
    clients = {p["published"]: p["target"] for p in chaos["services"]["toxiproxy"]["ports"]}
    assert clients["18100"] == int(port_of["clients"])


def test_everything_carries_the_labels_of_its_owner_and_run(chaos: dict[str, Any]) -> None:
    for kind in ("services", "volumes", "networks"):
        for name, value in chaos[kind].items():
            assert value["labels"][OWNER] == "flashruntime", (kind, name)
            assert value["labels"][RUN] == "run-7", (kind, name)


def test_nothing_of_the_chaos_stack_restarts_by_itself(chaos: dict[str, Any]) -> None:
    started = ["coordinator", "toxiproxy", *WORKERS]
    assert {chaos["services"][name].get("restart", "no") for name in started} == {"no"}


def test_the_runtime_image_is_built_with_the_bundle_as_a_secret_only() -> None:
    build = config(PLAIN, CA_BUNDLE="/somewhere/ca.pem")["services"]["coordinator"]["build"]
    assert [secret["source"] for secret in build["secrets"]] == ["ca_bundle"]
    assert "/somewhere/ca.pem" not in json.dumps(build["args"])
