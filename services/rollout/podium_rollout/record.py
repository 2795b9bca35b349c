"""The token record of a history: exactly what the engine saw and sampled."""

from __future__ import annotations

from collections.abc import Sequence

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2 as pb


class Record:
    """Grows by context and by sampled tokens, and by nothing else.

    Every prompt must begin with the whole record so far, so a token that was
    sampled is never rendered again.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._spans: list[pb.SampledSpan] = []

    @property
    def token_ids(self) -> list[int]:
        """The sequence so far."""
        return self._ids

    def prompt(self, token_ids: Sequence[int]) -> None:
        """Takes the next prompt: the record and a suffix of context.

        Raises:
            ValueError: the prompt does not begin with the record, or adds
                nothing to it.
        """
        ids = list(token_ids)
        if len(ids) <= len(self._ids) or ids[: len(self._ids)] != self._ids:
            raise ValueError(
                f"the prompt of {len(ids)} tokens does not continue the record of {len(self._ids)}"
            )
        self._ids = ids

    def sampled(self, generation: inference_pb.Generation, temperature: float) -> None:
        """Takes what was sampled after the prompt.

        Raises:
            ValueError: not one log-probability for each token.
        """
        count = len(generation.token_ids)
        if len(generation.logprobs) != count:
            raise ValueError(f"{len(generation.logprobs)} log-probs for {count} sampled tokens")
        if count == 0:
            return
        self._spans.append(
            pb.SampledSpan(
                start=len(self._ids),
                length=count,
                policy=generation.policy,
                weights_version=generation.weights_version,
                temperature=temperature,
                finish_reason=generation.finish_reason,
                request_id=generation.request_id,
            )
        )
        self._ids += generation.token_ids
        self._logprobs += generation.logprobs

    def build(self) -> pb.TokenRecord:
        """The record as the contract has it."""
        return pb.TokenRecord(token_ids=self._ids, logprobs=self._logprobs, spans=self._spans)
