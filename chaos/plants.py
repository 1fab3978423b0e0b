"""Bugs that are planted into the runtime, and who must catch each: the harness tested by itself."""

from dataclasses import dataclass

BOUND_S = 90.0


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug of chaos.payloads.planted_NAME: the run of `experiment` must violate `invariant`.

    `bound_s` is how long that run may take, its stack included and the build of the image not.
    """

    name: str
    bug: str
    experiment: str
    invariant: str
    bound_s: float = BOUND_S


PLANTS = (
    Plant("no_fsync", "a checkpoint is never fsynced", "power_loss", "survives_power_loss"),
    Plant(
        "manifest_first",
        "a step appears with its manifest before its parts",
        "power_loss",
        "survives_power_loss",
    ),
    Plant("no_ledger_sync", "the ledger is never fsynced", "power_loss", "survives_power_loss"),
    Plant(
        "no_hashing",
        "the newest checkpoint is trusted unread",
        "corrupt_newest_checkpoint",
        "resume_newest_valid",
    ),
    Plant("no_fencing", "a stale lease is never refused", "zombie_partition", "fenced_holder"),
    Plant(
        "no_sweep",
        "a lease that is over is never taken away",
        "zombie_partition",
        "detection_bound",
    ),
    Plant(
        "answers_first",
        "a change is answered, and written half a second later",
        "answered_claims",
        "answers_kept",
    ),
    Plant(
        "overwrites_artifacts",
        "an upload replaces an accepted output",
        "overwritten_artifact",
        "accepted_bytes",
    ),
    Plant(
        "no_rng_restore",
        "a resume leaves the random streams as they are",
        "kill_in_write_window",
        "same_as_reference",
    ),
)
