"""From a trajectory's token records to what trains: contexts, targets, sampler log-probs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.skip_reasons import (
    GREEDY,
    NO_SAMPLED_TOKENS,
    NO_TEACHER,
    OVER_MAX_ROW_TOKENS,
)
from podium.core.token_records import token_record_violations
from podium.types.v1 import trajectory_pb2

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Sample:
    """One history of a trajectory, cut after the last token that predicts a sampled one.

    n context tokens, k trained tokens. Trained token j is `targets[j]`; the logits at
    context index `positions[j]` predict it.
    """

    context: IntArray
    """[n] token ids."""
    positions: IntArray
    """[k] ascending indices into `context`."""
    targets: IntArray
    """[k] token ids."""
    logprobs: FloatArray
    """[k] nats, under the policy that sampled, at `temperatures`; NaN where not recorded."""
    temperatures: FloatArray
    """[k] above 0."""
    teacher: FloatArray | None = None
    """[k] nats, under the teacher at temperature 1; NaN where it was not asked. None without."""


@dataclass(frozen=True)
class Refused:
    """Why a trajectory that is well formed does not train."""

    reason: str
    tokens: int = 0
    """Of the longest context, where that is the reason."""


def read_samples(
    trajectory: trajectory_pb2.Trajectory,
    *,
    vocabulary: int,
    max_tokens: int | None = None,
    supervised: bool = False,
    taught: bool = False,
) -> list[Sample] | Refused:
    """The samples of every history that holds sampled tokens.

    A trajectory trains as a whole or not at all. `supervised` fine-tuning is at
    temperature 1, whatever the tokens were sampled at; `taught`, every history needs what a
    teacher said of it. A trajectory with a context of
    more than `max_tokens` is refused; None allows any.

    Raises:
        InvalidArgumentError: a token record contradicts itself.
    """
    samples = []
    refused: Refused | None = None
    for index, history in enumerate(trajectory.histories):
        field = f"group.trajectories[{trajectory.id}].histories[{index}].tokens"
        read = _read_record(history.tokens, field, vocabulary, supervised)
        if taught and isinstance(read, Sample) and read.teacher is None:
            read = Refused(NO_TEACHER)
        if isinstance(read, Refused):
            refused = refused or read
        elif read is not None:
            samples.append(read)
    if refused:
        return refused
    if not samples:
        return Refused(NO_SAMPLED_TOKENS)
    longest = max(len(sample.context) for sample in samples)
    if max_tokens is not None and longest > max_tokens:
        return Refused(OVER_MAX_ROW_TOKENS, longest)
    return samples


def _read_record(
    record: trajectory_pb2.TokenRecord, field: str, vocabulary: int, supervised: bool
) -> Sample | Refused | None:
    tokens = np.fromiter(record.token_ids, np.int64, len(record.token_ids))
    logprobs = np.fromiter(record.logprobs, np.float32, len(record.logprobs))
    teacher = np.fromiter(record.teacher_logprobs, np.float32, len(record.teacher_logprobs))
    violations = token_record_violations(record, field)
    if violations:
        raise InvalidArgumentError(violations=violations, reason="INCONSISTENT_TOKEN_RECORD")
    sampled = sum(span.length for span in record.spans)
    if len(tokens) and tokens.max() >= vocabulary:
        text = f"got {tokens.max()}; allowed is 0 to {vocabulary - 1}"
        raise InvalidArgumentError(
            violations=[Violation(f"{field}.token_ids", text)], reason="INCONSISTENT_TOKEN_RECORD"
        )
    if sampled == 0:
        return None
    if len(logprobs) == 0:
        logprobs = np.full(sampled, np.nan, np.float32)
    # An engine that cannot tell says NaN or minus infinity; the token was sampled all the same.
    logprobs[np.isneginf(logprobs)] = np.nan
    indices = np.concatenate(
        [np.arange(span.start, span.start + span.length) for span in record.spans]
    )
    temperatures = np.repeat(
        np.array([span.temperature for span in record.spans], np.float32),
        [span.length for span in record.spans],
    )
    if supervised:
        temperatures[:] = 1
    if (temperatures == 0).any():
        return Refused(GREEDY)
    return Sample(
        context=tokens[: indices[-1]],
        positions=indices - 1,
        targets=tokens[indices],
        logprobs=np.minimum(logprobs, np.float32(0)),
        temperatures=temperatures,
        teacher=teacher if len(teacher) else None,
    )
