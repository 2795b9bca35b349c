"""Steps of a model on conversations: batches of demonstrations, each with its learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium.core.contract import apply_defaults
from podium.core.errors import InvalidArgumentError, Violation
from podium.training.backend import Backend, TrainResult
from podium.training.bars import shown
from podium.training.sft.attempts import rows_of
from podium.training.sft.files import File, read_rows
from podium.training.sft.packed import PackedConversations
from podium.training.sft.render import Demonstration, rendered
from podium.training.step_config import SFT_LEARNING_RATE, TrainSFTConfig, check_rate
from podium.training.trajectories import Trajectory
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

_LOSS = "train/loss"


async def take_steps(
    backend: Backend,
    name: str,
    spec: spec_pb2.JobSpec,
    rows: Iterable[Trajectory | Mapping[str, Any]] | File,
    config: TrainSFTConfig,
    request_id: str,
    *,
    progress: bool,
) -> TrainResult:
    """What `TrainableModel.train_sft` says, of the model `name` with its spec."""
    size = _size(config, spec)
    _check_turns(config)
    given = read_rows(rows_of(rows), name="rows").rows
    if config.assistant_turns == "last":
        given = _last_turns(given)
    count = -(-len(given) // size)
    rates = _rates(config, spec, len(given), count)
    training = spec.training
    limit = training.max_row_tokens if training.HasField("max_row_tokens") else 0
    found = await rendered(given, backend.demonstrate, spec.rollout.episode, limit)
    result = TrainResult(0)
    with shown("sft" if progress else None) as bar:
        if bar is not None:
            bar.show(0, count, "")
        for number, batch in enumerate(_batches(found, size)):
            groups = [row.group() for row in batch]
            for group in groups:
                made = pb.BatchTraining(supervised=True, learning_rate=rates[number])
                group.batch_training.CopyFrom(made)
            # By its first row, so that a call again with a larger file begins with the same steps.
            step = await backend.submit(name, groups, f"{request_id}-{number * size}")
            result = await backend.trained(name, step)
            if bar is not None:
                loss = result.metrics.get(_LOSS)
                bar.show(number + 1, count, "" if loss is None else f"loss {loss:.4f}")
    return result


def _last_turns(rows: PackedConversations) -> PackedConversations:
    found = PackedConversations()
    for row in rows.taken():
        found.add(replace(row, trained=row.trained[-1:]))
    return found


def _batches(rows: Sequence[Demonstration], size: int) -> Iterator[Sequence[Demonstration]]:
    return (rows[first : first + size] for first in range(0, len(rows), size))


def _size(config: TrainSFTConfig, spec: spec_pb2.JobSpec) -> int:
    size = config.batch_size
    if size == "auto":
        sft = spec_pb2.SftSpec()
        sft.CopyFrom(spec.sft)
        return apply_defaults(sft).batch_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        text = f"got {size!r}; allowed are 'auto' and whole numbers from 1 up"
        raise InvalidArgumentError(violations=[Violation("config.batch_size", text)])
    return size


def _check_turns(config: TrainSFTConfig) -> None:
    if config.assistant_turns not in ("all", "last"):
        text = f"got {config.assistant_turns!r}; allowed are 'all' and 'last'"
        raise InvalidArgumentError(violations=[Violation("config.assistant_turns", text)])


def _rates(
    config: TrainSFTConfig, spec: spec_pb2.JobSpec, rows: int, count: int
) -> list[float | None]:
    """Of each batch; None for the job's."""
    path = "config.learning_rate"
    given = config.learning_rate
    if given is None:
        return [None if spec.HasField("sft") else SFT_LEARNING_RATE] * count
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [check_rate(given, path)] * count
    if len(given) != count:
        text = f"got {len(given)} rates; {rows} rows make {count} batches, which need one each"
        raise InvalidArgumentError(violations=[Violation(path, text)])
    return [check_rate(rate, f"{path}[{number}]") for number, rate in enumerate(given)]
