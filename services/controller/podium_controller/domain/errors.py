"""What can end the run of a job besides the errors that peers raise."""

from __future__ import annotations

from podium.core.errors import AbortedError, FailedPreconditionError, UnavailableError

SERVICES = frozenset({"rollout", "judge", "trainer", "inference", "registry"})
"""Of this installation; what a job names, such as an environment, is none of them."""

TOKEN_REFUSED = "TOKEN_REFUSED"
STORE_FORBIDDEN = "STORE_FORBIDDEN"


class DatabaseUnavailableError(UnavailableError):
    """The controller's own database cannot be reached, or is too busy."""

    default_reason = "DATABASE_UNAVAILABLE"


class LeaseLostError(AbortedError):
    """Another controller runs the jobs now; this one must not write any more."""

    default_reason = "LEASE_LOST"


class JobFailedError(FailedPreconditionError):
    """The job cannot go on; `reason` and `message` become the job's."""

    default_reason = "JOB_FAILED"


class JobIdleError(Exception):
    """The job's client has sent nothing for as long as the job may wait."""


class BudgetSpentError(Exception):
    """The job, or its project, has used what it may, and it has come to where it can rest."""

    def __init__(self, reason: str, message: str) -> None:
        """`message` is for people."""
        super().__init__(message)
        self.reason = reason


class PauseRequestedError(Exception):
    """The job was asked to pause, and has come to where it can."""
