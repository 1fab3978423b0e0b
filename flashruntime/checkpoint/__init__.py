"""Checkpoints: parts first, manifest last, verified before use; needs no framework."""

from flashruntime.checkpoint.chain import DEFAULT_KEEP, Chain
from flashruntime.checkpoint.commit import Snapshot, split
from flashruntime.checkpoint.lineage import Claim
from flashruntime.checkpoint.report import StepReport, inspect
from flashruntime.checkpoint.store import Kind, Rejection, Resume

__all__ = [
    "DEFAULT_KEEP",
    "Chain",
    "Claim",
    "Kind",
    "Rejection",
    "Resume",
    "Snapshot",
    "StepReport",
    "inspect",
    "split",
]
