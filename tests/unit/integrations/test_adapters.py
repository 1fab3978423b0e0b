"""Adapters: workloads by the conventions of a framework, which they do not import."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flashruntime.errors import InvalidInput
from flashruntime.integrations import huggingface, pytorch, sklearn


def test_a_sweep_gives_each_name_as_an_option() -> None:
    made = sklearn.sweep("fit.py", [{"lr": 0.1, "c": "a b"}], metric="acc", maximize=False)
    assert made.command == ["python", "fit.py", "--lr", "{lr}", "--c", "{c}"]
    assert made.argv(made.tasks[0])[2:] == ["--lr", "0.1", "--c", "a b"]
    assert (made.outputs.primary_metric, made.outputs.maximize) == ("acc", False)
    assert made.outputs.files.required == []


def test_a_grid_is_every_combination_in_order() -> None:
    made = sklearn.hpo("fit.py", {"a": [1, 2], "b": ["x", "y"]})
    assert [(task["a"], task["b"]) for task in made.tasks] == [
        (1, "x"), (1, "y"), (2, "x"), (2, "y"),
    ]  # fmt: skip


@pytest.mark.parametrize("params", [[], [{"a": 1}, {"b": 1}], [{"a": 1}, {"a": 1, "b": 2}]])
def test_sets_of_unlike_names_are_refused(params: list[dict[str, object]]) -> None:
    with pytest.raises(InvalidInput, match="task_params"):
        sklearn.sweep("fit.py", params)


@pytest.mark.parametrize("values", [[], "abc", 3])
def test_a_grid_without_values_is_refused(values: object) -> None:
    with pytest.raises(InvalidInput, match="grid"):
        sklearn.hpo("fit.py", {"a": values})  # type: ignore[dict-item]


def test_ddp_runs_under_torchrun() -> None:
    made = pytorch.ddp("train.py", script_args="--name 'my run'", nproc_per_node=4)
    assert made.is_torchrun
    assert made.command == ["train.py", "--name", "my run"]
    assert made.resources.nproc_per_node == 4


def test_a_trainer_runs_under_torchrun_only_with_several_processes() -> None:
    one = huggingface.trainer("t.py", script_args=["--x", "a b"], metric="eval_loss")
    assert (one.is_torchrun, one.command) == (False, ["python", "t.py", "--x", "a b"])
    assert huggingface.trainer("t.py", nproc_per_node=2).is_torchrun


def safetensors(size_bytes: int) -> bytes:
    """Return a file of one tensor in the format that its authors define."""
    entry = {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size_bytes)


def zipped() -> bytes:
    """Return what a file of torch.save is from outside."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("data.pkl", b"0" * 100)
    return made.getvalue()


def checkpoint(
    root: Path, step: int, state: object = None, weights: bytes = safetensors(100), **files: bytes
) -> Path:
    place = root / f"checkpoint-{step}"
    place.mkdir()
    state = {"global_step": step} if state is None else state
    (place / "trainer_state.json").write_text(json.dumps(state))
    (place / "model.safetensors").write_bytes(weights)
    (place / "optimizer.pt").write_bytes(files.get("optimizer", zipped()))
    return place


def test_the_latest_checkpoint_is_the_newest_complete_one_by_number(tmp_path: Path) -> None:
    checkpoint(tmp_path, 90)
    checkpoint(tmp_path, 100)
    checkpoint(tmp_path, 200, weights=b"")
    checkpoint(tmp_path, 300, {"global_step": 7})
    checkpoint(tmp_path, 400, [])
    (tmp_path / "checkpoint-500").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    assert huggingface.latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")
    assert huggingface.latest_checkpoint(tmp_path / "none") is None


@pytest.mark.parametrize(
    "files",
    [
        {"weights": safetensors(100)[:-1]},
        {"weights": safetensors(100)[:20]},
        {"weights": b"\xff" * 40},
        {"optimizer": zipped()[:-30]},
        {"optimizer": b""},
    ],
)
def test_a_checkpoint_with_a_file_that_is_cut_short_is_passed_over(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    checkpoint(tmp_path, 5)
    checkpoint(tmp_path, 10, **files)  # type: ignore[arg-type]
    assert huggingface.latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5")


def test_sharded_weights_are_complete_only_with_each_shard(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, 5)
    (place / "model.safetensors").rename(place / "model-1.safetensors")
    names = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert huggingface.latest_checkpoint(tmp_path) is None
    (place / "model-2.safetensors").write_bytes(safetensors(3))
    assert huggingface.latest_checkpoint(tmp_path) == str(place)
    for name in names.values():
        (place / name).unlink()
    assert huggingface.latest_checkpoint(tmp_path) is None


def test_adapters_load_no_framework() -> None:
    code = (
        "import sys; from flashruntime.integrations import pytorch, sklearn, huggingface; "
        "print({'torch', 'sklearn.base', 'transformers', 'numpy', 'httpx'} & set(sys.modules))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()"
