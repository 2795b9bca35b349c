"""The messages that gpt-oss writes in one turn, each to a channel, some to a tool (Harmony)."""

from __future__ import annotations

import re

_HEADER = r"(?:(?!<\|(?:start|message|end|call|return)\|>).){0,300}?"

MESSAGE = re.compile(
    r"(?:<\|start\|>\s*assistant)?"
    r"(?P<header>(?:[^\S\n]{0,4}to=|<\|channel\|>)" + _HEADER + r")<\|message\|>"
    r"(?P<body>.*?)"
    r"(?:<\|(?:end|call|return)\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
"""`<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>…`, or the recipient first."""

RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]*)")
"""In a message's header; its group is a tool's name."""

CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
"""In a message's header."""
