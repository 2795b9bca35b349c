"""kubectl as a subprocess: whoever may use it may use Podium, with the rights that they have."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress

from podium.core.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    PodiumError,
    UnauthenticatedError,
    UnavailableError,
)

_SECONDS = 60.0
# Of kubectl's words, in lower case, what they mean. The first that fits counts.
_MEANINGS: tuple[tuple[str, type[PodiumError]], ...] = (
    ("forbidden", PermissionDeniedError),
    ("unauthorized", UnauthenticatedError),
    ("you must be logged in", UnauthenticatedError),
    ("getting credentials", UnauthenticatedError),
    ("(notfound)", NotFoundError),
    ("context was not found", NotFoundError),
    ("does not exist", NotFoundError),
    ("the connection to the server", UnavailableError),
    ("unable to connect to the server", UnavailableError),
    ("(serviceunavailable)", UnavailableError),
    ("(timeout)", UnavailableError),
    ("unable to forward port because pod is not running", UnavailableError),
    ("error upgrading connection", UnavailableError),
    ("timed out waiting for the condition", UnavailableError),
)


class Kubectl:
    """Runs kubectl with one context of the kubeconfig, in one namespace."""

    def __init__(self, context: str = "", namespace: str = "") -> None:
        """An empty context or namespace is kubectl's own choice."""
        self.context = context
        self.namespace = namespace

    def command(self, *arguments: str) -> list[str]:
        """The program and its arguments.

        Raises:
            FailedPreconditionError: there is no kubectl.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise FailedPreconditionError(
                "there is no kubectl on PATH, and Kubernetes is reached through it",
                reason="NO_KUBECTL",
            )
        options = [f"--context={self.context}"] if self.context else []
        options += [f"--namespace={self.namespace}"] if self.namespace else []
        return [program, *options, *arguments]

    async def run(self, *arguments: str, text_in: str = "") -> str:
        """The standard output of a command that must succeed.

        Raises:
            PermissionDeniedError, UnauthenticatedError: the API server refuses.
            NotFoundError: there is no such object, or no such context of the kubeconfig.
            UnavailableError, DeadlineExceededError: the API server cannot be reached.
            FailedPreconditionError: there is no kubectl, or it fails otherwise.
        """
        code, out, words = await self.attempt(*arguments, text_in=text_in)
        if code:
            raise failure(words or out)
        return out

    async def attempt(self, *arguments: str, text_in: str = "") -> tuple[int, str, str]:
        """Exit code, standard output and what it complains of, of a command that may fail.

        Raises:
            DeadlineExceededError: it takes longer than a minute.
            FailedPreconditionError: there is no kubectl.
        """
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_SECONDS):
                out, words = await process.communicate(text_in.encode())
        except TimeoutError:
            raise DeadlineExceededError(
                f"kubectl {arguments[0]} has not ended after {_SECONDS:g} seconds",
                reason="KUBECTL_TIMEOUT",
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(errors="replace"), said(words)


def said(raw: bytes) -> str:
    """What kubectl says for people, without its log lines."""
    lines = raw.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.strip() and not _logged(line))


def failure(words: str, default: type[PodiumError] = FailedPreconditionError) -> PodiumError:
    """The error of what kubectl said; `default` where its words tell nothing."""
    low = words.lower()
    kind = next((kind for sign, kind in _MEANINGS if sign in low), default)
    return kind(f"kubectl: {words or 'it failed without a word'}", reason="KUBECTL_FAILED")


def _logged(line: str) -> bool:
    """Whether it is klog's: `E1122 00:33:01.204852   22708 memcache.go:265] …`."""
    return line[:1] in "IWEF" and line[1:5].isdigit() and "] " in line
