"""Names that the controller makes. All but a job's own id are pure functions of what they name."""

from __future__ import annotations

import secrets

from podium.core.names import slug

RESERVED = frozenset({"base"})
"""What a policy reference means by these is not a job."""

DEFAULT_PROJECT = "default"
"""Of a job that names none."""

SAMPLED = "sampled"
GREEDY = "greedy"

WAITING_ROOM = 0
"""In place of a step's number: of groups that are drawn and that no step has taken."""

# No vowels, so no words; no 0, 1 or l, so nothing to misread.
_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"
_SUFFIX_LENGTH = 6
_EVALUATION_SUFFIX_LENGTH = 8
_SLUG_LENGTH = 40


def new_job_id(environment: str) -> str:
    """A readable id that nobody has: `email-search-k3v9q2`."""
    name = slug(environment)[:_SLUG_LENGTH].strip("-")
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return f"{name or 'job'}-{suffix}"


def new_evaluation_id() -> str:
    """An id for a stored evaluation: `eval-k3v9q2wd`."""
    return "eval-" + "".join(secrets.choice(_ALPHABET) for _ in range(_EVALUATION_SUFFIX_LENGTH))


def training_group(job_id: str, step: int, index: int) -> str:
    """The id of a step's group: the same after any retry."""
    return f"{job_id}/s{step}/g{index}"


def drawn_group(job_id: str, number: int) -> str:
    """The id of a group that no step has when it is drawn: the same after any retry."""
    return f"{job_id}/d{number}"


def evaluation_group(job_id: str, version: int, mode: str, index: int) -> str:
    """The id of an evaluation's group: the same after any retry."""
    return f"{job_id}/v{version}-{mode}/g{index}"
