"""How model families write what they think before they answer; vLLM's names where it has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podium.core.harmony import CHANNEL, MESSAGE, RECIPIENT

Split = tuple[str | None, str]
"""Thoughts, None for none, and the answer."""

_THINK = ("<think>", "</think>")
_MISTRAL = ("[THINK]", "[/THINK]")
_SEED = ("<seed:think>", "</seed:think>")
_HARMONY_OPENING = "<|channel|>analysis<|message|>"


def _between(reply: str, signs: tuple[str, str], *, assumed: bool) -> Split:
    """Thoughts end at the first closing sign, and need no opening one: a prompt may have it.

    Args:
        assumed: whether a reply without any sign is thought throughout, having been cut off
            before its answer.
    """
    opening, closing = signs
    thoughts, closed, answer = reply.partition(closing)
    if not closed and opening not in reply and not assumed:
        return None, reply
    before, opened, inner = thoughts.partition(opening)
    # Words before the opening sign are no answer: what is after the closing one is.
    thoughts = f"{before}{inner}" if opened else thoughts
    return thoughts.strip(), answer.lstrip()


def _harmony(reply: str) -> Split:
    """gpt-oss: a channel `analysis` for thoughts, all others are said to somebody.

    What is said to a tool stays as it is written, and is read as a call afterwards.
    """
    if "<|channel|>" not in reply:
        return None, reply
    thoughts: list[str] = []
    answer: list[str] = []
    for message in MESSAGE.finditer(reply):
        channel = CHANNEL.search(message["header"])
        if RECIPIENT.search(message["header"]):
            answer.append(message[0])
        elif channel and channel[1] == "analysis":
            thoughts.append(message["body"].strip())
        else:
            answer.append(message["body"].strip())
    return "\n".join(thoughts) if thoughts else None, "\n".join(answer)


def _tags(signs: tuple[str, str], *, assumed: bool = True) -> Callable[[str], Split]:
    return lambda reply: _between(reply, signs, assumed=assumed)


PARSERS: Mapping[str, Callable[[str], Split]] = {
    "deepseek_r1": _tags(_THINK),
    "deepseek_v3": _tags(_THINK),
    "glm45": _tags(_THINK),
    "kimi_k2": _tags(_THINK),
    "minimax_m2": _tags(_THINK),
    "mistral": _tags(_MISTRAL, assumed=False),
    "nemotron_v3": _tags(_THINK),
    "olmo3": _tags(_THINK, assumed=False),
    "openai_gptoss": _harmony,
    "qwen3": _tags(_THINK),
    "seed_oss": _tags(_SEED),
}
"""By name: from a whole reply, without the token that ended it. Nothing raises."""

SPECIAL_SIGNS = frozenset({"mistral", "openai_gptoss"})
"""Parsers whose signs are special tokens, which decoding leaves out unless told otherwise."""

OPENINGS = frozenset({"", *(signs[0] for signs in (_THINK, _MISTRAL, _SEED)), _HARMONY_OPENING})
"""What a template may write before thoughts that the model itself has opened."""

_ASKED_ONLY = frozenset({"deepseek_v3"})
"""Models that think only when their template is told so."""


def thinks(parser: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the replies of a conversation are to be read by this parser.

    Args:
        arguments: what the template is told; `enable_thinking` and `thinking` are the
            families' names for it.
    """
    told = [arguments[name] for name in ("enable_thinking", "thinking") if name in arguments]
    return bool(parser) and (any(told) if told else parser not in _ASKED_ONLY)
