"""Which imports of a script are done beforehand."""

import textwrap
from pathlib import Path

import pytest

from flashruntime.launch.preload import modules_of, script_of


def found(tmp_path: Path, **files: str) -> list[str]:
    for name, code in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
    script = script_of(("python", "train.py"))
    assert script is not None
    return modules_of(script, tmp_path)


def test_big_packages_at_the_top_level_are_found_in_order(tmp_path: Path) -> None:
    code = """
    import json, numpy as np
    from sklearn import datasets, svm
    try:
        import pandas.testing
    except ImportError: pass
    if True: from scipy.stats import *
    def later(): import torch
    """
    expected = ["numpy:", "sklearn:datasets,svm", "pandas.testing:", "scipy.stats:"]
    assert sorted(found(tmp_path, train=code)) == sorted(expected)


def test_files_beside_the_script_are_followed_and_left_out(tmp_path: Path) -> None:
    files = {
        "train": "import model, numpy",
        "model": "import torch, train",
        "numpy": "import scipy",
    }
    assert sorted(found(tmp_path, **files)) == ["scipy:", "torch:"]


@pytest.mark.parametrize(
    "line", ["opt = torch.optim.SGD", "from flashruntime.torch import prepare"]
)
def test_training_takes_what_its_first_step_would_import(tmp_path: Path, line: str) -> None:
    assert "torch._dynamo:" in found(tmp_path, train=f"import torch\n{line}")
    assert found(tmp_path, train="import torch") == ["torch:"]


@pytest.mark.parametrize("code", ["if", "\0", "import " + "(" * 2000])
def test_a_script_that_cannot_be_read_has_no_imports(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, train=code) == []
    (tmp_path / "train.py").unlink()
    assert found(tmp_path) == []
