"""What runs inside the helper container, on trees that the runtime's own checkpoint core wrote."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chaos.targets.inside import flip, probe, tree, watch
from flashruntime.checkpoint import Chain, Claim, Snapshot

ROOT = Path(__file__).parents[3]


def save(root: Path, attempt: str, epoch: int, *steps: int) -> None:
    chain = Chain.begin(root, Claim(attempt, "job", epoch), keep=None)
    for step in steps:
        chain.save(Snapshot(step, {"a": bytes([step]) * 100, "b": b"x" * 50}))


def listed(root: Path, hashed: bool = True) -> dict[int, str]:
    answer = tree.answer({"root": str(root), "hash": hashed})
    return {step["step"]: step["state"] for step in answer["steps"]}


def test_a_tree_that_the_runtime_wrote_is_valid_and_tells_its_lineage(tmp_path: Path) -> None:
    save(tmp_path, "one", 0, 10, 20)
    save(tmp_path, "two", 1, 30)
    answer = tree.answer({"root": str(tmp_path), "hash": True})
    assert [(s["step"], s["state"]) for s in answer["steps"]] == [
        (30, "valid"),
        (20, "valid"),
        (10, "valid"),
    ]
    taken = answer["steps"][1]["manifest_id"]
    assert answer["lineage"] == [
        {"attempt_id": "one", "manifest_id": None, "step": None},
        {"attempt_id": "two", "manifest_id": taken, "step": 20},
    ]
    assert answer["staging"] == []


def test_a_missing_tree_is_empty(tmp_path: Path) -> None:
    answer = tree.answer({"root": str(tmp_path / "none"), "hash": True})
    assert answer == {"steps": [], "staging": [], "lineage": []}


@pytest.mark.parametrize(
    ("name", "data", "state"),
    [
        ("a", b"y" * 100, "corrupt"),
        ("a", b"", "corrupt"),
        ("a", None, "corrupt"),
        ("manifest.json", b"{}", "corrupt"),
        ("manifest.json", b"\xff", "corrupt"),
        ("manifest.json", None, "torn"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, data: bytes | None, state: str) -> None:
    save(tmp_path, "one", 0, 10)
    path = tmp_path / "step-000010" / name
    path.unlink() if data is None else path.write_bytes(data)
    assert listed(tmp_path) == {10: state}


def test_a_manifest_that_was_edited_does_not_match_its_digest(tmp_path: Path) -> None:
    save(tmp_path, "one", 0, 10)
    path = tmp_path / "step-000010" / "manifest.json"
    path.write_text(path.read_text().replace('"step":10', '"step":10 '))
    assert listed(tmp_path) == {10: "valid"}
    path.write_text(path.read_text().replace('"one"', '"two"'))
    assert listed(tmp_path) == {10: "corrupt"}


def test_parts_without_a_manifest_are_a_window_and_with_one_they_are_none(tmp_path: Path) -> None:
    staged = tmp_path / ".staging" / "one" / "step-000020"
    staged.mkdir(parents=True)
    request = {"root": str(tmp_path), "attempt_id": "one", "min_step": 15, "timeout_s": 0.01}
    assert watch.answer(request) == {"window": None}
    (staged / "a").write_bytes(b"x")
    assert watch.answer(request)["window"]["step"] == 20
    assert watch.answer({**request, "attempt_id": "two"}) == {"window": None}
    assert watch.answer({**request, "min_step": 21}) == {"window": None}
    (staged / "manifest.json").write_bytes(b"{}")
    assert watch.answer(request) == {"window": None}
    (found,) = tree.answer({"root": str(tmp_path), "hash": False})["staging"]
    assert found == {"attempt_id": "one", "step": 20, "parts": {"a": 1}, "manifest": True}


@pytest.mark.parametrize("choice", range(5))
def test_one_bit_of_the_newest_checkpoint_is_flipped_and_flipping_it_again_restores_it(
    tmp_path: Path, choice: int
) -> None:
    save(tmp_path, "one", 0, 10, 20)
    request = {"root": str(tmp_path), "part": choice, "offset": choice / 4, "bit": choice}
    first = flip.answer(request)
    assert first["step"] == 20
    assert first["before"] != first["after"]
    assert listed(tmp_path) == {10: "valid", 20: "corrupt"}
    again = flip.answer(request)
    assert (again["before"], again["after"]) == (first["after"], first["before"])
    assert listed(tmp_path) == {10: "valid", 20: "valid"}


def test_without_a_checkpoint_there_is_nothing_to_flip(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no committed checkpoint"):
        flip.answer({"root": str(tmp_path), "part": 0, "offset": 0.0, "bit": 0})


@pytest.mark.parametrize(
    ("reply", "outcome"), [(b"HTTP/1.1 200 OK\r\n", "ok"), (b"", "closed"), (None, "reset")]
)
def test_a_probe_tells_an_answer_from_an_end_and_from_a_reset(
    reply: bytes | None, outcome: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                if reply is None:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                else:
                    peer.recv(4096)
                    peer.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        request = {"host": "127.0.0.1", "port": port, "path": "/", "timeout_s": 5.0}
        assert probe.answer(request)["outcome"] == outcome
        thread.join()
    assert probe.answer(request)["outcome"] == "refused"


def test_a_probe_that_gets_no_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        request = {"host": "127.0.0.1", "port": port, "path": "/", "timeout_s": 0.05}
        assert probe.answer(request)["outcome"] == "timeout"


def test_the_server_answers_line_by_line_and_survives_a_request_that_fails(tmp_path: Path) -> None:
    calls = [
        {"script": "damage", "request": {"root": str(tmp_path)}},
        {"script": "tree", "request": {"root": str(tmp_path), "hash": False}},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "chaos.targets.inside.serve"],
        input="".join(json.dumps(call) + "\n" for call in calls),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    failed, answered = map(json.loads, done.stdout.splitlines())
    assert failed["error"].startswith("KeyError")
    assert answered["answer"]["steps"] == []
