"""What a turn costs with a model's real template and tokenizer, as a conversation grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from podium.core.outside import struct_of
from podium.inference.v1 import inference_service_pb2 as pb
from podium.local import models
from podium.types.v1 import trajectory_pb2 as types_pb
from podium_inference.adapters.quick_tokenizer import quick
from podium_inference.domain.render import Renderer
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.episode import Episode

from bench.rollout.bookkeeping import request_of
from bench.rollout.stub_engine import WINDOW, sampled_words

_MODEL = "smollm2-135m-instruct"
OWN = "SmolLM2's"
SHIPPED = ("qwen3", "qwen2_5", "llama3_1")
"""Templates of TRL's package, with SmolLM2's tokenizer."""
_COMPARED = 8
"""Turns of a whole conversation that are timed, the last ones."""
_TOOL = types_pb.Tool(name="search", description="Searches.")
KINDS = {
    "words": [],
    "calls": [_TOOL],
    "calls of eight tools": [
        types_pb.Tool(
            name=name,
            description=f"Does what {name} says, with what it is given.",
            parameters=struct_of(
                {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "Words to look for."},
                        "path": {"type": "string", "description": "Where to begin."},
                        "limit": {"type": "integer", "minimum": 1, "description": "At most."},
                        "kind": {"type": "string", "enum": ["new", "old", "any"]},
                    },
                    "required": ["query"],
                }
            ),
        )
        for name in ("search", "list", "read", "write", "move", "send", "plan", "answer")
    ],
}
"""Turns, by the tools on offer: words and a question, or a call and its result."""


def templates() -> dict[str, str]:
    """By name; the model's own is empty. TRL's only where that is installed."""
    found = {OWN: ""}
    try:
        folder = files("trl").joinpath("chat_templates")
    except ModuleNotFoundError:
        return found
    return found | {name: folder.joinpath(f"{name}.jinja").read_text() for name in SHIPPED}


def tokenizer() -> Any:
    """SmolLM2's, as the inference service has it."""
    from transformers import AutoTokenizer

    return quick(AutoTokenizer.from_pretrained(models.resolve(_MODEL)))


def measure(made: Any, template: str, turns: int, kind: str) -> dict[str, Any]:
    """Milliseconds of CPU that a turn's render and tokens take: of the recent messages, of all.

    Every turn's tokens are the same from both, or it fails.

    Args:
        made: the tokenizer.
        template: empty for its own.
        kind: one of `KINDS`.
    """
    recent = Renderer(made, chat_template=template)
    whole = Renderer(made, chat_template=template, always_whole=True)
    tools = KINDS[kind]
    call_format = recent.call_format if tools else ""
    messages = _conversation(turns, bool(tools))
    prompts = [(messages[: 2 + 2 * turn], 1 + 2 * turn) for turn in range(1, turns + 1)]

    def follow(renderer: Renderer, prompt: tuple[Sequence[types_pb.Message], int]) -> list[int]:
        return renderer.following(prompt[0], tools, [made.eos_token_id], prompt[1], call_format)

    for prompt in prompts:
        assert follow(recent, prompt) == follow(whole, prompt)
    # Whatever is found out once has been.
    began = time.process_time()
    for prompt in prompts:
        follow(recent, prompt)
    each = time.process_time() - began
    seconds = {}
    for name, renderer in (("recent", recent), ("whole", whole)):
        last = prompts[-1:] * _COMPARED
        began = time.process_time()
        for prompt in last:
            follow(renderer, prompt)
        seconds[name] = time.process_time() - began
    return {
        "turns": turns,
        "kind": kind,
        "ms_per_turn": 1000 * each / turns,
        "ms_last_turn": 1000 * seconds["recent"] / _COMPARED,
        "ms_last_turn_whole": 1000 * seconds["whole"] / _COMPARED,
    }


def _conversation(turns: int, calls: bool) -> list[types_pb.Message]:
    messages = [
        types_pb.Message(role=types_pb.ROLE_SYSTEM, content="You play."),
        types_pb.Message(role=types_pb.ROLE_USER, content="Where is it?"),
    ]
    for turn in range(turns):
        call = types_pb.ToolCall(
            id=f"call{turn:05d}", name="search", arguments_json='{"query": "it"}'
        )
        answer = types_pb.Message(role=types_pb.ROLE_ASSISTANT, content=f"In place {turn}, I say.")
        told = types_pb.Message(role=types_pb.ROLE_USER, content="No. Where do you think it is?")
        if calls:
            answer = types_pb.Message(role=types_pb.ROLE_ASSISTANT, tool_calls=[call])
            told = types_pb.Message(
                role=types_pb.ROLE_TOOL,
                content=f"Result {turn}: it was seen in the garden, near the third tree.",
                tool_call_id=call.id,
                name="search",
            )
        messages += [answer, told]
    return messages


class RealTemplate:
    """`Policy` in this process: real renders, the stub engine's words."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def generate(self, request: pb.GenerateRequest) -> pb.GenerateResponse:
        asked = request.render
        if asked.prefix_ids:
            ids = self._renderer.following(
                asked.messages, asked.tools, asked.prefix_ids, asked.prefix_messages, ""
            )
        else:
            ids = self._renderer.first(asked.messages, asked.tools, "")
        return pb.GenerateResponse(
            rendered=pb.RenderResponse(token_ids=ids, max_model_len=WINDOW),
            generation=sampled_words(request.sampling.seed),
        )


async def measure_episode(made: Any, template: str, turns: int, repeats: int) -> float:
    """Milliseconds of CPU a turn of a whole episode, renders and agent loop together."""
    renderer = Renderer(made, chat_template=template)
    seconds = []
    for _ in range(repeats):
        episode = Episode(request_of(turns), 0, Environments(), RealTemplate(renderer))
        began = time.process_time()
        (trajectory,) = await episode.run()
        seconds.append(time.process_time() - began)
        assert trajectory.metrics["turns"] == turns
        assert len(trajectory.histories) == 1
    return 1000 * statistics.median(seconds) / turns
