"""Run every situation of tests/corpus_independent as a local run and keep what was seen as JSON.

python tests/unit/recovery/record_independent.py
Each run has one attempt; what it is told (outputs, a limit on progress, environment) is in
labels.json.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import flashruntime as flash
from flashruntime.protocol.events import EventType

CORPUS = Path(__file__).parents[2] / "corpus_independent"
KEPT = Path(__file__).parent / "corpus" / "independent.json"


def record(label: dict[str, Any]) -> dict[str, Any]:
    """Return the evidence of one real run, its directories under neutral names."""
    expects = label.get("expects") or {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve()
        source = root / "source"
        source.mkdir()
        name = label["name"].removesuffix(".py")
        (source / "train.py").write_bytes((CORPUS / "situations" / f"{name}.py").read_bytes())
        workload = flash.CommandWorkload(
            [sys.executable, "train.py"],
            source=source,
            env=expects.get("env") or {},
            outputs=expects.get("outputs") or [],
            no_progress_s=expects.get("no_progress_s"),
        )
        run = flash.submit(workload, root / "out", watch=False, timeout_s=60)
        failed = [e for e in run.events if e.type is EventType.TASK_ATTEMPT_FAILED]
        assert len(failed) == 1, (label["name"], run.state, run.reason)
        data = failed[0].data
        text = json.dumps({**data["evidence"], "log_tail": data["log_tail"]})
        for found, shown in ((str(root), "/job"), (sys.prefix, "/venv"), (sys.base_prefix, "/usr")):
            text = text.replace(found, shown)
        return json.loads(text)


def main() -> None:
    labels = json.loads((CORPUS / "labels.json").read_text("utf-8"))
    seen = {label["name"]: record(label) for label in labels}
    KEPT.write_text(json.dumps(seen, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
