"""The token record of a history: exactly what the engine saw and sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from podium.core.token_records import sampled_spans
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedScalarFieldContainer


class RecordedTokens:
    """A token record in the making: context and sampled tokens are only ever appended.

    Every prompt is the whole record so far and what is new, so a token that was
    sampled is never rendered again, and no turn touches what the ones before left.
    """

    def __init__(self, token_ids: RepeatedScalarFieldContainer[int] | None = None) -> None:
        """`token_ids` is an empty field of the request that each turn sends, where the sequence
        then is: no turn copies what the ones before left."""
        # As the contract has it: one repeated field is copied to another a hundred times
        # faster than a list.
        self._record = pb.TokenRecord()
        self._elsewhere = token_ids is not None
        self._token_ids = self._record.token_ids if token_ids is None else token_ids

    @property
    def token_ids(self) -> Sequence[int]:
        """The sequence so far."""
        return self._token_ids

    def __len__(self) -> int:
        """How many tokens it holds."""
        return len(self._token_ids)

    def context(self, token_ids: Sequence[int]) -> None:
        """Takes what stands between the record and the next sampled token.

        Raises:
            ValueError: it is nothing.
        """
        if not token_ids:
            raise ValueError(f"nothing follows the record of {len(self)} tokens")
        self._token_ids.MergeFrom(token_ids)

    def sampled(self, generation: inference_pb.Generation, temperature: float) -> None:
        """Takes what was sampled after the prompt.

        Raises:
            ValueError: not one log-probability, or not one version, for each token.
        """
        count = len(generation.token_ids)
        if len(generation.logprobs) != count:
            raise ValueError(f"{len(generation.logprobs)} log-probs for {count} sampled tokens")
        if count == 0:
            return
        self._record.spans.extend(sampled_spans(generation, len(self), temperature))
        self._token_ids.MergeFrom(generation.token_ids)
        self._record.logprobs.MergeFrom(generation.logprobs)

    def build(self) -> pb.TokenRecord:
        """The record as the contract has it; a copy."""
        built = pb.TokenRecord()
        built.CopyFrom(self._record)
        if self._elsewhere:
            built.token_ids.MergeFrom(self._token_ids)
        return built
