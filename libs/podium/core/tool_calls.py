"""Thoughts and tool calls in a reply, as the contract has them."""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.outside import clean, clean_json
from podium.core.reasoning_formats import PARSERS
from podium.core.tool_formats import FORMATS, Types
from podium.types.v1 import trajectory_pb2 as pb

DEFAULT_FORMAT = "hermes"


_BETWEEN = "/"


def reply_format(parser: str, call_format: str) -> str:
    """Both in one, as `RenderResponse.call_format` has them."""
    return f"{parser}{_BETWEEN}{call_format}" if parser else call_format


def parse_reply(
    text: str,
    format_of_reply: str,
    calls_before: int = 0,
    tools: Sequence[pb.Tool] = (),
) -> pb.Message:
    """The assistant's message in a reply; never raises.

    What it thought is apart, and no call is read from it.

    Args:
        format_of_reply: see `reply_format`.
        calls_before: how many calls the conversation holds already.
        tools: those that the model was told of.
    """
    parser, _, call_format = format_of_reply.rpartition(_BETWEEN)
    thoughts, answer = PARSERS[parser](text) if parser else (None, text)
    message = pb.Message(role=pb.ROLE_ASSISTANT, content=clean(answer))
    if call_format:
        message = parse_tool_calls(answer, call_format, calls_before, tools)
    if thoughts is not None:
        message.reasoning = clean(thoughts)
    return message


def id_of_call(own: str, taken: set[str], number: int) -> str:
    """A call's own id, or one by its number where it has none or another's; `taken` gets it.

    Results are told apart by it.
    """
    call_id = own if own and own not in taken else f"call{number:05d}"
    taken.add(call_id)
    return call_id


def parse_tool_calls(
    text: str,
    call_format: str = DEFAULT_FORMAT,
    calls_before: int = 0,
    tools: Sequence[pb.Tool] = (),
) -> pb.Message:
    """The assistant's message in a reply; never raises.

    A call that cannot be read stays in the text, where the environment sees it, and
    `malformed_calls` says why. Calls whose format has no ids, or that have an id
    twice, are numbered through the conversation, in nine letters and digits, as Mistral's
    templates demand.

    Args:
        call_format: one of `tool_formats.FORMATS`.
        calls_before: how many calls the conversation holds already.
        tools: those that the model was told of; formats that write every argument as text
            take its type from their schemas.
    """
    reply = FORMATS[call_format](text, Types(tools))
    calls: list[pb.ToolCall] = []
    ids: set[str] = set()
    for number, call in enumerate(reply.calls):
        calls.append(
            pb.ToolCall(
                id=id_of_call(clean(call.id), ids, calls_before + number),
                name=clean(call.name),
                arguments_json=clean_json(call.arguments_json),
            )
        )
    return pb.Message(
        role=pb.ROLE_ASSISTANT,
        content=clean(reply.content),
        tool_calls=calls,
        malformed_calls=[clean(why) for why in reply.malformed],
    )
