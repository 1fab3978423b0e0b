"""Every error that flashruntime raises on purpose.

FlashError
  InvalidInput            what the caller gave breaks a rule (also a ValueError)
    QuotaExceeded         more bytes than the coordinator takes, alone or for the job
  ConfigError             a setting or environment variable is missing or wrong
  NotFound                no such job, task, lease, node or artifact
  Conflict                the request contradicts what is already recorded
    Superseded            a newer attempt holds the task; this one must stop
  StoreUnavailable        the ledger cannot take the change now; try again later
    StoreFull             the store holds as many bytes as it may
    StoreLocked           another coordinator owns the store
  CheckpointError         a checkpoint cannot be written, read or trusted
    NotFinite             the state to save holds NaN where training needs numbers
  ArtifactCorrupt         bytes do not hash to the digest that was promised
  AccessDenied            the coordinator does not let this caller do that
    TokenRefused          it knows no such token, or was shown none
  CoordinatorUnreachable  no answer from the coordinator within the deadline
"""


class FlashError(Exception):
    """flashruntime failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__class__.__doc__ or "").strip())


class InvalidInput(FlashError, ValueError):
    """The input breaks a rule."""


class QuotaExceeded(InvalidInput):
    """The coordinator does not take that many bytes, alone or for that job."""


class ConfigError(FlashError):
    """A setting is missing or wrong."""


class NotFound(FlashError):
    """No such object."""


class Conflict(FlashError):
    """The request contradicts what is already recorded."""


class Superseded(Conflict):
    """A newer attempt holds the task; this one must stop."""


class StoreUnavailable(FlashError):
    """The ledger cannot take the change now; try again later."""


class StoreFull(StoreUnavailable):
    """The store holds as many bytes as it may; delete jobs or raise the limit."""


class StoreLocked(StoreUnavailable):
    """Another coordinator owns the store."""


class CheckpointError(FlashError):
    """A checkpoint cannot be written, read or trusted."""


class NotFinite(CheckpointError):
    """The state to save holds NaN where training needs numbers."""


class ArtifactCorrupt(FlashError):
    """The bytes do not hash to the digest that was promised."""


class AccessDenied(FlashError):
    """The coordinator does not let this caller do that."""


class TokenRefused(AccessDenied):
    """The coordinator knows no such token, or was shown none."""


class CoordinatorUnreachable(FlashError):
    """No answer from the coordinator within the deadline."""

    def __init__(self, message: str | None = None, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
