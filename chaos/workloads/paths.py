"""Short jobs, one for each fault on a path and each of its moments, after one that is spared.

Those that are hit in an upload hand in a large file; the lease of those that are hit at their end
is longer than the fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
FAULTS = ("latency", "timeout", "reset_peer", "one_way_partition")
HEARTBEAT, UPLOAD, COMMIT = "heartbeat", "upload", "commit"
MOMENTS = (HEARTBEAT, UPLOAD, COMMIT)
STEPS, EVERY = 240, 24
SAVES = STEPS // EVERY
UPLOAD_KIB = 16 * 1024
LEASE_S, LONG_LEASE_S = 3.0, 12.0


def role(fault: str, moment: str) -> str:
    """Return the role of the job that a fault hits at a moment."""
    return f"{moment}-{fault}".replace("_", "-")


def request(seed: int, output_kib: int = 0, lease_s: float = LEASE_S) -> JobRequest:
    """Return a job of some seconds that hands in a file of this size, or none."""
    options = {
        "--steps": STEPS,
        "--every": EVERY,
        "--seed": seed % 2**32,
        "--outputs": int(output_kib > 0),
        "--output-kib": output_kib,
    }
    outputs = ("output-0.bin",) if output_kib else ()
    return JobRequest(
        name="paths",
        command=("python3", SCRIPT.name, *(str(w) for pair in options.items() for w in pair)),
        files={SCRIPT.name: SCRIPT.read_bytes()},
        required_outputs=("metrics.json", *outputs),
        lease_s=lease_s,
        keep_checkpoints=SAVES,
    )


@dataclass(frozen=True, slots=True)
class Paths:
    """The reference, then a job for each fault and moment."""

    name: str = "paths"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the jobs; all of them train alike."""
        del count
        kinds = {
            HEARTBEAT: request(seed),
            UPLOAD: request(seed, UPLOAD_KIB, LONG_LEASE_S),
            COMMIT: request(seed, lease_s=LONG_LEASE_S),
        }
        hit = {
            role(fault, moment): replace(job, like="reference", starts_after="reference")
            for moment, job in kinds.items()
            for fault in FAULTS
        }
        return {"reference": request(seed), **hit}


WORKLOAD = Paths()
