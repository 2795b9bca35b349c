"""Formats of messages that are addressed: to the user, to oneself, to a tool."""

from __future__ import annotations

import re

from podium.core.harmony import MESSAGE, RECIPIENT
from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.reading import Call, ParsedReply, UnreadableError
from podium.core.tool_formats.xml_calls import ATEM

_MUSE = re.compile(
    r"(?:<\|start\|>\s*assistant)?[^\S\n]{0,4}(?:to=(?P<to>[\w.-]+))?<\|message\|>"
    r"(?P<body>.*?)(?:<\|eom\|>|<\|eot\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)


def harmony(reply: str, _: Types) -> ParsedReply:
    """`<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`.

    OpenAI's gpt-oss. What has no recipient is said, on whichever channel.
    """
    found = ParsedReply()
    words: list[str] = []
    position = 0
    for match in MESSAGE.finditer(reply):
        words.append(reply[position : match.start()])
        position = match.end()
        recipient = RECIPIENT.search(match["header"])
        if recipient is None:
            words.append(match["body"])
            continue
        try:
            found.calls.append(Call(recipient[1], match["body"].strip() or "{}"))
        except UnreadableError as error:
            found.malformed.append(str(error))
            words.append(match[0])
    words.append(reply[position:])
    found.content = "\n".join(word for each in words if (word := each.strip()))
    return found


def muse_glimmer(reply: str, types: Types) -> ParsedReply:
    """`to=NAME<|message|><atem:function_calls><atem:invoke name="NAME">…`, see `ATEM`.

    What is addressed `to=self` is thought, and nothing in it called.
    """
    found = ParsedReply()
    words: list[str] = []
    position = 0
    for match in _MUSE.finditer(reply):
        words.append(reply[position : match.start()])
        position = match.end()
        if match["to"] == "self":
            words.append(match["body"])
            continue
        part = ATEM(match["body"], types)
        found.calls += part.calls
        found.malformed += part.malformed
        words.append(part.content)
    rest = ATEM(reply[position:], types)
    found.calls += rest.calls
    found.malformed += rest.malformed
    words.append(rest.content)
    found.content = "\n".join(word for each in words if (word := each.strip()))
    return found
