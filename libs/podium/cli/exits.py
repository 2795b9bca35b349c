"""Exit codes, and how an error is shown.

0    done
1    the job failed, or anything not below
2    usage, or an invalid file or value
3    a service cannot be reached
4    not authenticated, or not allowed
5    not found, or in conflict with what exists
124  the wait timed out
130  interrupted
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum

import click

from podium.core import errors


class Exit(IntEnum):
    """The codes of this module's docstring."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    AUTH = 4
    CONFLICT = 5
    TIMEOUT = 124
    INTERRUPTED = 130


class CliError(Exception):
    """Ends the command with a message, what to do about it, and an exit code."""

    def __init__(self, message: str, hint: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


_CODES: tuple[tuple[type[errors.PodiumError], Exit], ...] = (
    (errors.InvalidArgumentError, Exit.USAGE),
    (errors.OutOfRangeError, Exit.USAGE),
    (errors.UnavailableError, Exit.UNREACHABLE),
    (errors.DeadlineExceededError, Exit.UNREACHABLE),
    (errors.UnauthenticatedError, Exit.AUTH),
    (errors.PermissionDeniedError, Exit.AUTH),
    (errors.NotFoundError, Exit.CONFLICT),
    (errors.AlreadyExistsError, Exit.CONFLICT),
    (errors.FailedPreconditionError, Exit.CONFLICT),
    (errors.AbortedError, Exit.CONFLICT),
)

_HINTS = {
    Exit.UNREACHABLE: "'podium doctor' looks for the cause. Where nothing runs yet, start it with "
    "'podium up'; where it runs elsewhere, save it with 'podium login', or name it with --address "
    "HOST:PORT or PODIUM_ADDRESS.",
    Exit.AUTH: "Name a token that this installation accepts with 'podium login', or set "
    "PODIUM_TOKEN.",
}

# By reason, where something more exact than the code's hint can be said.
_REASON_HINTS = {
    "POLICY_NOT_LOADED": "'podium checkpoint list JOB' shows the versions that exist; a pool of "
    "merged weights serves the job that it trains, or trained last, in its newest version.",
    "ALREADY_UP": "",
    "KUBECTL_FAILED": "The words are kubectl's, which acts with the rights of your kubeconfig.",
    "POD_LOGS_DENIED": "Reading them takes the rights to list pods and to get pods/log there, "
    "which whoever runs the cluster gives with a Role.",
    "NO_KUBECTL": "Install kubectl, or save the services' addresses with 'podium login'.",
    "NO_STACK": "Start it with 'podium up --data-dir DIR'; 'podium status' shows what runs here.",
    "NO_ADDRESS": "'podium login' saves the addresses of an installation.",
    "TLS_HANDSHAKE": "Files and name for TLS are saved by 'podium login --tls-...', or given with "
    "PODIUM_TLS_CERTIFICATE_FILE, ..._KEY_FILE, ..._AUTHORITIES_FILE and ..._SERVER_NAME.",
    "NO_CONTEXT": "'podium login' saves one, 'podium context list' shows them.",
    "NO_RELEASE": "Name release and namespace with 'podium login'; 'podium install' says how to "
    "install one.",
    "SERVICE_ENDED": "Read the log above; 'podium doctor' checks the usual causes.",
    "SERVICE_NOT_READY": "Read the logs; a first start of a large model can need a longer "
    "--ready-timeout.",
}

# What a disk or a folder refuses, and what to do; which command it met makes no difference.
_RIGHTS = "Name another folder, or see to it that you may read and write there."
_ROOM = "Make room there, or name another folder."
_FILES = "'ulimit -n' shows how many files this shell's programs may open, and raises it."
_OF_THE_MACHINE = {
    errno.EACCES: _RIGHTS,
    errno.EROFS: _RIGHTS,
    errno.ENOTDIR: _RIGHTS,
    errno.ENAMETOOLONG: "Name a shorter one.",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
}

_ENVIRONMENT_HINT = (
    "'podium env serve' serves an environment; its address must be one that the rollout service "
    "reaches."
)


def code_of(error: errors.PodiumError) -> Exit:
    """The exit code of an error."""
    if error.reason == "WAIT_TIMEOUT":
        return Exit.TIMEOUT
    if error.reason in ("NO_KUBECTL", "NO_STACK"):
        return Exit.UNREACHABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def show(error: Exception) -> Exit:
    """Prints an error for people on stderr and returns the exit code."""
    if isinstance(error, CliError):
        message, hint, code = error.message, error.hint, error.code
    elif isinstance(error, errors.PodiumError):
        code = code_of(error)
        message = _describe(error)
        hint = _REASON_HINTS.get(error.reason, _HINTS.get(code, ""))
        if error.metadata.get("peer", "").startswith("environment "):
            hint = _ENVIRONMENT_HINT
    elif isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        place = f"{error.filename}: " if error.filename else ""
        message = f"{place}{error.strerror}"
        hint, code = _OF_THE_MACHINE[error.errno], Exit.FAILED
    elif isinstance(error, FileNotFoundError) and error.filename is None:
        # As os.getcwd says it.
        message = "the folder that this was started in is no longer there"
        hint, code = "Change to one that is, with cd.", Exit.FAILED
    else:
        message = f"{type(error).__name__}: {error}"
        hint = "This is a defect of podium; PODIUM_DEBUG=1 shows where."
        code = Exit.FAILED
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        click.echo(hint, err=True)
    return code


def colour_choice() -> bool | None:
    """False where NO_COLOR asks for none; None lets each stream decide by being a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def debugging() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get("PODIUM_DEBUG", "") not in ("", "0")


def _describe(error: errors.PodiumError) -> str:
    violations = getattr(error, "violations", ())
    if len(violations) > 1:
        return "\n".join(
            [f"{len(violations)} problems", *(f"  {violation}" for violation in violations)]
        )
    return error.message or type(error).__name__
