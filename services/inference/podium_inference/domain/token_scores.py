"""What a policy gives somebody else's tokens, fit to be sent and to be learned from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from podium.core.errors import FailedPreconditionError

LEAST_LOGPROB = -100.0
"""Nats; a token that a policy rules out has minus infinity, with which nothing can be reckoned."""


def sendable(logprobs: Sequence[float]) -> list[float]:
    """[n] log-probs, nats, none below `LEAST_LOGPROB`.

    Raises:
        FailedPreconditionError: LOGPROBS_NOT_FINITE, one is no number, as of weights that overflow.
    """
    for place, value in enumerate(logprobs):
        if math.isnan(value) or value == math.inf:
            raise FailedPreconditionError(
                f"the policy gives {value} for token {place + 1} of the sequence; its weights, or"
                " what they compute, are no numbers",
                reason="LOGPROBS_NOT_FINITE",
            )
    return [max(value, LEAST_LOGPROB) for value in logprobs]


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """`sha256:…` of each token with its id, whatever their order."""
    digest = hashlib.sha256()
    for token, number in sorted(vocabulary.items(), key=lambda item: (item[1], item[0])):
        word = token.encode("utf-8", "surrogatepass")
        digest.update(f"{number} {len(word)} ".encode() + word)
    return f"sha256:{digest.hexdigest()}"
