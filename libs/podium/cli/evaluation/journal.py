"""What a named `podium eval run` has measured so far, on this machine, so that another goes on.

A file for each agent: a line of JSON that says what its numbers depend on, one with the policy's
version, and one an attempt as it ends. A line that was cut off is as if it were not there.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from podium.cli.exits import CliError, Exit
from podium.cli.output import note
from podium.core.homes import home

if TYPE_CHECKING:
    from podium.sdk.evaluation import Attempt
    from podium.types.v1 import policy_pb2, trajectory_pb2

_FORMAT = 1
_HINT = "Give another --name, or measure all of it again with --fresh."


@dataclass(frozen=True)
class EarlierAttempt:
    """An attempt of an earlier command."""

    attempt: Attempt
    digest: str
    """Of its scenario."""
    record: bytes
    """The episode's, where a judge was to read it."""


class Journal:
    """Of one agent. Without a file it knows nothing, and keeps nothing."""

    def __init__(self, file: IO[bytes] | None = None, run: str = "") -> None:
        self._file = file
        self.run = run
        """Of the command that began it."""
        self.policy: policy_pb2.PolicyRef | None = None
        """What it was begun with; None for an agent that is none, and of a new one."""
        self._known: dict[tuple[str, int], EarlierAttempt] = {}

    def known(
        self, digests: Mapping[str, str], attempts: int, *, recorded: bool
    ) -> dict[tuple[str, int], EarlierAttempt]:
        """What was measured before, of these scenarios as they are now.

        Args:
            digests: of each scenario, by its id.
            recorded: only those whose episode was kept.
        """
        return {
            (name, number): each
            for (name, number), each in self._known.items()
            if digests.get(name) == each.digest
            and number < attempts
            and (each.record or not recorded)
        }

    def begin(self, policy: policy_pb2.PolicyRef) -> None:
        """The agent is this policy, in every command that goes on."""
        if self.policy is None:
            self.policy = policy
            self._write({"policy": _text(policy.SerializeToString())})

    def keep(
        self, attempt: Attempt, digest: str, record: trajectory_pb2.Trajectory | None = None
    ) -> None:
        """Keeps an attempt that ended; one that was never answered is to be asked for again."""
        if attempt.unanswered or self._file is None:
            return
        body = record.SerializeToString() if record is not None else b""
        self._known[attempt.scenario_id, attempt.attempt] = EarlierAttempt(attempt, digest, body)
        plain = asdict(attempt) | {"metrics": dict(attempt.metrics)}
        self._write({"attempt": plain, "digest": digest, "record": _text(body)})

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to go on with."""
        return not self._known

    def close(self) -> None:
        """Lets others have it. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, lines: Iterator[Mapping[str, Any]]) -> None:
        """Takes over what stands in the file after its first line."""
        from podium.sdk.evaluation import Attempt
        from podium.types.v1 import policy_pb2

        for line in lines:
            # A line that somebody else has written is measured again.
            with suppress(KeyError, TypeError, ValueError, DecodeError):
                if "policy" in line:
                    self.policy = policy_pb2.PolicyRef.FromString(_bytes(line["policy"]))
                    continue
                attempt = Attempt(**line["attempt"])
                known = EarlierAttempt(attempt, line["digest"], _bytes(line["record"]))
                self._known[attempt.scenario_id, attempt.attempt] = known

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            # At once: whoever is killed has lost no attempt that ended.
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()


class Journals:
    """Of one command. Without a name none is kept."""

    def __init__(self, name: str, identity: Mapping[str, str], *, fresh: bool) -> None:
        """`identity` is what else tells this evaluation from others of its name."""
        self._name = name
        self._identity = identity
        self._fresh = fresh
        self._open: dict[Path, Journal] = {}
        self.run = uuid.uuid4().hex
        """Of this command, or of the first that it goes on with."""

    def open(self, agent: str, depends: Mapping[str, Any]) -> Journal:
        """What is known of an agent, and what is to be kept.

        Args:
            depends: what its numbers depend on, as JSON values.

        Raises:
            CliError: another command has it, or what it was begun with differs.
        """
        if not self._name:
            return Journal()
        key = json.dumps({"name": self._name, "agent": agent, **self._identity}, sort_keys=True)
        path = _folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.jsonl"
        if path in self._open:
            # Named twice in one command.
            return self._open[path]
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        except OSError as error:
            note(f"an interruption would lose what is measured: {path}: {error.strerror}")
            return Journal()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            text = f"{agent} is being measured by another `podium eval run --name {self._name}`"
            raise CliError(text, "Wait for it, or give another --name.", Exit.CONFLICT) from None
        journal = self._begun(file, depends, f"{self._name!r} of {agent}")
        self._open[path] = journal
        return journal

    def close(self, *, done: bool) -> None:
        """Lets go of them; `done` when nothing is left to go on with."""
        for path, journal in self._open.items():
            if done or journal.is_empty:
                path.unlink(missing_ok=True)
            journal.close()
        self._open.clear()

    @property
    def kept(self) -> bool:
        """Whether there is anything to go on with."""
        return not all(journal.is_empty for journal in self._open.values())

    def _begun(self, file: IO[bytes], depends: Mapping[str, Any], called: str) -> Journal:
        lines, size = _lines(file.read())
        if self._fresh or not lines or not _is_head(lines[0]):
            lines, size = [], 0
        file.seek(size)
        file.truncate()
        wanted = json.loads(json.dumps(depends))
        if not lines:
            journal = Journal(file, self.run)
            journal._write({"format": _FORMAT, "run": self.run, "depends": wanted})
            return journal
        found = lines[0]["depends"]
        if differing := _differences(found, wanted):
            file.close()
            raise CliError(
                f"an interrupted evaluation {called} was begun with {differing}",
                _HINT,
                Exit.CONFLICT,
            )
        journal = Journal(file, lines[0]["run"])
        journal.read(iter(lines[1:]))
        if not self._open:
            self.run = journal.run
        return journal


def digest_of(scenario: object) -> str:
    """Of a scenario's content, as the SDK or a rollout service gives it."""
    from podium.types.v1 import trajectory_pb2

    if isinstance(scenario, trajectory_pb2.Scenario):
        body = scenario.SerializeToString(deterministic=True)
    else:
        body = repr(scenario).encode("utf-8", "backslashreplace")
    return hashlib.sha256(body).hexdigest()


def _lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a file up to the first that is none, and their bytes."""
    found, size = [], 0
    for line in content.splitlines(keepends=True):
        try:
            plain = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or not isinstance(plain, dict):
            break
        found.append(plain)
        size += len(line)
    return found, size


def _is_head(line: Mapping[str, Any]) -> bool:
    kinds = {"format": int, "run": str, "depends": dict}
    known = all(isinstance(line.get(name), kind) for name, kind in kinds.items())
    return known and line["format"] == _FORMAT


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names: Sequence[str] = sorted(found.keys() | wanted.keys())
    return ", ".join(
        f"{name} {found.get(name)!r} and not {wanted.get(name)!r}"
        for name in names
        if found.get(name) != wanted.get(name)
    )


def _folder() -> Path:
    if given := os.environ.get("PODIUM_CONFIG_DIR", ""):
        return Path(given).absolute() / "evaluations"
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base else home() / ".local/state") / "podium/evaluations"


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
