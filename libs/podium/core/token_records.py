"""What every token record must satisfy, whoever made it, and the spans of what was sampled."""

from __future__ import annotations

import math
from collections.abc import Iterator

from podium.core.errors import Violation
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2

LOGPROB_SLACK = 1e-3
"""Nats above 0 that rounding may give a log-prob of certainty."""


def sampled_spans(
    generation: inference_pb.Generation, start: int, temperature: float
) -> Iterator[trajectory_pb2.SampledSpan]:
    """The spans of an answer that stands at `start` of its record, one for each version.

    Raises:
        ValueError: its versions do not add up to its tokens.
    """
    count = len(generation.token_ids)
    runs = [(run.tokens, run.weights_version) for run in generation.versions]
    runs = runs or [(count, generation.weights_version)]
    if sum(tokens for tokens, _ in runs) != count or min(tokens for tokens, _ in runs) < 1:
        text = " + ".join(str(tokens) for tokens, _ in runs)
        raise ValueError(f"the versions are of {text} tokens; {count} were sampled")
    for tokens, version in runs:
        span = trajectory_pb2.SampledSpan(
            start=start,
            length=tokens,
            policy=generation.policy,
            weights_version=version,
            temperature=temperature,
            request_id=generation.request_id,
        )
        start += tokens
        count -= tokens
        if not count:
            span.finish_reason = generation.finish_reason
        yield span


def spans_by_turn(record: trajectory_pb2.TokenRecord) -> list[list[trajectory_pb2.SampledSpan]]:
    """The spans of each turn: those without context between them are one, of several versions."""
    turns: list[list[trajectory_pb2.SampledSpan]] = []
    end = -1
    for span in record.spans:
        if span.start == end:
            turns[-1].append(span)
        else:
            turns.append([span])
        end = span.start + span.length
    return turns


def token_record_violations(record: trajectory_pb2.TokenRecord, path: str) -> list[Violation]:
    """Where a record contradicts itself; empty when it does not.

    A log-prob may be NaN or minus infinity, which an engine says that cannot
    tell; all of them may be left out.
    """
    found = _spans(record, path)
    sampled = sum(span.length for span in record.spans)
    if len(record.logprobs) not in (0, sampled):
        found.append(
            Violation(
                f"{path}.logprobs",
                f"got {len(record.logprobs)}; the spans hold {sampled} sampled tokens",
            )
        )
    taught = len(record.teacher_logprobs)
    if taught not in (0, sampled):
        text = f"got {taught}; the spans hold {sampled} sampled tokens"
        found.append(Violation(f"{path}.teacher_logprobs", text))
    for name in ("logprobs", "teacher_logprobs"):
        known = (value for value in getattr(record, name) if not math.isnan(value))
        highest = max(known, default=0.0)
        if highest > LOGPROB_SLACK:
            text = f"got {highest:g} nats; allowed is at most 0"
            found.append(Violation(f"{path}.{name}", text))
    if record.token_ids and min(record.token_ids) < 0:
        found.append(
            Violation(f"{path}.token_ids", f"got {min(record.token_ids)}; allowed is 0 or more")
        )
    return found


def _spans(record: trajectory_pb2.TokenRecord, path: str) -> list[Violation]:
    found = []
    end = 0
    for index, span in enumerate(record.spans):
        name = f"{path}.spans[{index}]"
        if span.length < 1:
            found.append(Violation(f"{name}.length", f"got {span.length}; allowed is at least 1"))
        if span.start < 1:
            found.append(
                Violation(f"{name}.start", f"got {span.start}; a sampled token needs one before it")
            )
        if span.start < end:
            found.append(
                Violation(f"{name}.start", f"got {span.start}; the span before ends at {end}")
            )
        end = span.start + span.length
        if end > len(record.token_ids):
            found.append(
                Violation(name, f"ends at {end}; the record has {len(record.token_ids)} tokens")
            )
        if not math.isfinite(span.temperature) or span.temperature < 0:
            found.append(
                Violation(f"{name}.temperature", f"got {span.temperature}; allowed is 0 or more")
            )
    return found
