"""What the pods of a release write, read through kubectl with the rights of the kubeconfig."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from podium.core.errors import PermissionDeniedError, PodiumError
from podium.kit.kubernetes.object_template import JOB_LABEL
from podium.sdk.connection.contexts import Kubernetes
from podium.sdk.connection.kubectl import Kubectl, failure, said

MOST_LINE_BYTES = 256 * 1024
"""Of a longer line the rest is left out."""

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(\S*)$")


@dataclass(frozen=True)
class ReleasePod:
    """A pod of a release."""

    name: str
    component: str
    job: str
    """Whose trainer or environment it is; empty for one that all jobs share."""
    restarts: int


class PodLogs:
    """The pods of a release, and their logs."""

    def __init__(self, where: Kubernetes) -> None:
        self._where = where
        self._kubectl = Kubectl(where.context, where.namespace)

    async def pods(self, job: str) -> list[ReleasePod]:
        """The job's own pods, then those that all jobs share; other jobs' are not among them.

        Raises:
            PodiumError: as `Kubectl.run`; PermissionDeniedError says which right is missing.
        """
        release = f"app.kubernetes.io/instance={self._where.release}"
        labels = f"{release},app.kubernetes.io/part-of=podium"
        try:
            listed = await self._kubectl.run("get", "pods", f"--selector={labels}", "--output=json")
        except PermissionDeniedError as error:
            raise _denied(error, self._where.namespace) from None
        found = [_pod(item) for item in json.loads(listed)["items"]]
        mine = [pod for pod in found if pod.job in ("", job) and pod.component != "postgresql"]
        return sorted(mine, key=lambda pod: (not pod.job, pod.component, pod.name))

    def reader(self, pod: ReleasePod, *, since: str = "", previous: bool = False) -> PodReader:
        """Reads one pod's log from its start, or from `since` (`10m`) ago."""
        return PodReader(self._kubectl, pod, since, previous)


class PodReader:
    """One pod's log; each call goes on after the last line that was read."""

    def __init__(self, kubectl: Kubectl, pod: ReleasePod, since: str, previous: bool) -> None:
        self.pod = pod
        self._kubectl = kubectl
        self._since = since
        self._previous = previous
        self._last = ""

    async def lines(self, *, follow: bool = False) -> AsyncGenerator[str, None]:
        """The lines; with `follow` those to come too, until the container ends.

        Raises:
            PodiumError: what kubectl said; PermissionDeniedError says which right is missing.
        """
        process = await asyncio.create_subprocess_exec(
            *self._kubectl.command(*self._arguments(follow)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        read_before = self._last
        complaint = asyncio.ensure_future(_end_of(process.stderr))
        try:
            async for raw in _split(process.stdout):
                stamp, _, line = raw.decode(errors="replace").partition(" ")
                key = _sortable(stamp)
                # Within one log times may be equal, and go back a little: a container's two outputs
                # are written down by one each.
                if key and key <= read_before:
                    continue
                self._last = max(self._last, key)
                yield line if key else f"{stamp} {line}".rstrip()
            code = await process.wait()
            if code:
                error = failure(said(await complaint))
                if isinstance(error, PermissionDeniedError):
                    raise _denied(error, self._kubectl.namespace)
                raise error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            complaint.cancel()

    def _arguments(self, follow: bool) -> Sequence[str]:
        made = ["logs", self.pod.name, "--timestamps"]
        if self._last:
            # The API server knows whole seconds; what was read of this one is left out here.
            made.append(f"--since-time={self._last[:19]}{self._last[29:]}")
        elif self._since:
            made.append(f"--since={self._since}")
        if self._previous:
            made.append("--previous")
        return [*made, "--follow"] if follow else made


def _pod(item: dict[str, Any]) -> ReleasePod:
    labels = item["metadata"].get("labels") or {}
    statuses = item.get("status", {}).get("containerStatuses") or []
    return ReleasePod(
        name=item["metadata"]["name"],
        component=labels.get("app.kubernetes.io/component", ""),
        job=labels.get(JOB_LABEL, ""),
        restarts=max((status.get("restartCount", 0) for status in statuses), default=0),
    )


def _denied(error: PodiumError, namespace: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"your rights do not reach to the logs of pods in namespace {namespace}: {error.message}",
        reason="POD_LOGS_DENIED",
    )


def _sortable(stamp: str) -> str:
    """A time of kubectl's in one length, so that text order is time order; empty for none."""
    found = _STAMP.match(stamp)
    return f"{found[1]}.{found[2] or '':0<9}{found[3]}" if found else ""


async def _split(stream: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """Whole lines, however long they are."""
    rest = b""
    while chunk := await stream.read(65536):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line[:MOST_LINE_BYTES]
        # One byte more says that it was too long; what follows of it is dropped here.
        rest = rest[: MOST_LINE_BYTES + 1]
    if rest:
        yield rest[:MOST_LINE_BYTES]


async def _end_of(stream: asyncio.StreamReader) -> bytes:
    """The last of what is written there."""
    kept = b""
    while chunk := await stream.read(4096):
        kept = (kept + chunk)[-8192:]
    return kept
