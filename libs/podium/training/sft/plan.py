"""Which rows are in which step: a pure function of the job's spec and the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from podium.core.contract import apply_defaults
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.sft import HELDOUT
from podium.environments.scenarios.batches import iterate_dataset
from podium.training.sft.render import Demonstration
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

MAX_BATCH_BYTES = 60 * 1024 * 1024
"""Of a step's rows together; a call takes 64 MiB."""


@dataclass(frozen=True)
class Plan:
    """A run over rows."""

    rows: Sequence[Demonstration]
    heldout: Sequence[Demonstration]
    sft: spec_pb2.SftSpec
    """With its defaults."""
    seed: int
    first_step: int
    """The job's first; above 1 for a fork."""
    steps: int
    """How many are taken."""
    digest: str = field(default="")

    def batch(self, step: int) -> list[pb.Group]:
        """The rows of a step of the job's, and those that are held out when it measures them."""
        number = step - self.first_step
        groups = [self.rows[place].group() for place in self._places(number)]
        if self.measures(step):
            groups += [row.group(HELDOUT) for row in self.heldout]
        return groups

    def measures(self, step: int) -> bool:
        """Whether held-out rows are measured after a step."""
        every = self.sft.validate_every_steps
        number = step - self.first_step + 1
        return number in (1, self.steps) or bool(every and number % every == 0)

    def request_id(self, step: int) -> str:
        """The same for the same rows, so that a batch that was sent before is sent once."""
        return f"sft-{step}-{self.digest.removeprefix('sha256:')[:32]}"

    def _places(self, number: int) -> list[int]:
        size = self.sft.batch_size
        if self.sft.shuffle:
            batches = iterate_dataset(
                range(len(self.rows)), size, self.sft.epochs, number, seed=self.seed
            )
            return next(batches).items
        start = number % _per_epoch(len(self.rows), size) * size
        return list(range(len(self.rows))[start : start + size])


def plan(
    spec: spec_pb2.JobSpec, rows: Sequence[Demonstration], heldout: Sequence[Demonstration]
) -> Plan:
    """Fills in what the rows say of the job, in place: its steps and its `sft`.

    Raises:
        InvalidArgumentError: the spec says otherwise, or a step's rows are too large for a call.
    """
    sft = apply_defaults(spec.sft)
    spec.sft.SetInParent()
    spec.client.SetInParent()
    first = spec.fork.version + 1 if spec.fork.model else 1
    whole = sft.epochs * _per_epoch(len(rows), sft.batch_size)
    last = spec.training.steps or first - 1 + whole
    steps = last - first + 1
    if not 1 <= steps <= whole:
        text = (
            f"got {spec.training.steps}; {len(rows)} rows in {sft.epochs} epochs of"
            f" {sft.batch_size} a step are steps {first} to {first - 1 + whole}: leave it out for"
            " all of them"
        )
        raise InvalidArgumentError(violations=[Violation("training.steps", text)])
    spec.training.steps = last
    _check_size(rows, heldout, sft.batch_size)
    digest = _digest(rows, heldout)
    sft.rows, sft.heldout_rows, sft.data_digest = len(rows), len(heldout), digest
    return Plan(rows, heldout, sft, spec.seed, first, steps, digest)


def _per_epoch(rows: int, size: int) -> int:
    return -(-rows // size)


def _check_size(
    rows: Sequence[Demonstration], heldout: Sequence[Demonstration], batch_size: int
) -> None:
    largest = nlargest(batch_size, (len(row.body) for row in rows))
    held = sum(len(row.body) for row in heldout)
    if sum(largest) + held > MAX_BATCH_BYTES:
        text = (
            f"the {len(largest)} largest rows and the {len(heldout)} that are held out have"
            f" {sum(largest) + held} bytes as a step; allowed are {MAX_BATCH_BYTES}: take fewer"
        )
        raise InvalidArgumentError(violations=[Violation("sft.batch_size", text)])


def _digest(rows: Sequence[Demonstration], heldout: Sequence[Demonstration]) -> str:
    whole = hashlib.sha256()
    for part in (rows, heldout):
        whole.update(len(part).to_bytes(8, "big"))
        for row in part:
            whole.update(len(row.body).to_bytes(8, "big") + row.body)
    return "sha256:" + whole.hexdigest()
