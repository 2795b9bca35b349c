"""Conversations as tokens without a tokenizer: a double of RenderDemonstration's own work."""

from __future__ import annotations

from podium.core.errors import InvalidArgumentError, Violation
from podium.inference.v1 import inference_service_pb2 as pb

WINDOW = 2048


def demonstrated(request: pb.RenderDemonstrationRequest) -> pb.RenderDemonstrationResponse:
    """A token for each byte, and one that ends each message; refuses the word `refused`."""
    made = pb.Demonstration(messages=len(request.messages))
    for place, message in enumerate(request.messages):
        if message.content == "refused":
            violation = Violation(f"messages[{place}]", "the chat template refuses them: a word")
            raise InvalidArgumentError(violations=[violation])
        start = len(made.tokens.token_ids) + 1
        made.tokens.token_ids.extend([1, *(byte + 3 for byte in message.content.encode()), 2])
        if place in request.trained:
            length = len(made.tokens.token_ids) - start
            made.tokens.spans.add(start=start, length=length, temperature=1)
    return pb.RenderDemonstrationResponse(demonstrations=[made], max_model_len=WINDOW)
