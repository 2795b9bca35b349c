"""Formats that write each argument between tags, its value as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.reading import SHOWN, Call, ParsedReply, UnreadableError, cut, written
from podium.core.tool_formats.values import skip

_QUOTED = r"""["']?([^"'>\n]*)["']?"""


@dataclass(frozen=True)
class Tags:
    """How one family writes a call; all are regular expressions."""

    call: str
    """Up to the arguments; its group is the name."""
    parameter: str
    """Its groups `key` and `value`, and `raw`: `true` where the value is a string. Only before
    another tag of the call does it end, so that values may have its closing tag in them."""
    end: str
    around: str = ""
    """Around all calls; no part of the words."""
    needs: str = ""
    """Without this in the reply it has no calls."""
    lines: bool = False
    """Whether values stand on lines of their own."""

    def __call__(self, reply: str, types: Types) -> ParsedReply:
        """See `FORMATS`."""
        if self.needs and self.needs not in reply:
            return ParsedReply(reply.strip())
        if self.around:
            reply = re.sub(self.around, "", reply)
        end, parameter = re.compile(self.end), re.compile(self.parameter, re.DOTALL)

        def read(reply: str, match: re.Match[str]) -> tuple[list[Call], int]:
            name = match[1].strip()
            arguments: dict[str, Any] = {}
            position = skip(reply, match.end())
            while not (closing := end.match(reply, position)):
                found = parameter.match(reply, position)
                if found is None:
                    shown = reply[position : position + SHOWN]
                    raise UnreadableError(f"{shown!r} is no argument, and its end is missing")
                key, value = found["key"].strip(), found["value"]
                if self.lines:
                    value = value.removeprefix("\n").removesuffix("\n")
                is_text = (found.groupdict().get("raw") or "") == "true"
                arguments[key] = value if is_text else types.value(name, key, value)
                position = skip(reply, found.end())
            return [Call(name, written(arguments))], closing.end()

        return cut(reply, re.compile(self.call), read)


def _qwen(wrapper: str) -> Tags:
    return Tags(
        call=rf"(?:<{wrapper}>\s*)?<function=([^>\n]*)>",
        parameter=r"<parameter=(?P<key>[^>\n]*)>(?P<value>.*?)</parameter>"
        rf"(?=\s*(?:<parameter=|</function>|</{wrapper}>|\Z))",
        end=rf"</function>(?:\s*</{wrapper}>)?|</{wrapper}>",
        lines=True,
    )


def _invoked(prefix: str, needs: str = "", around: str = "") -> Tags:
    return Tags(
        call=rf"<{prefix}invoke name={_QUOTED}>",
        parameter=rf"<{prefix}parameter name=[\"']?(?P<key>[^\"'>\n]*)[\"']?"
        r"(?: string=\"(?P<raw>true|false)\")?>(?P<value>.*?)"
        rf"</{prefix}parameter>(?=\s*(?:<{prefix}parameter|</{prefix}invoke>))",
        end=rf"</{prefix}invoke>",
        needs=needs,
        around=around,
    )


QWEN3_CODER = _qwen("tool_call")
"""`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.

Qwen3-Coder, Qwen3.5 to 3.8, Nemotron 3, Step 3.5 (their chat templates). Models forget the outer
opening tag, which is not asked for."""

SEED_OSS = _qwen("seed:tool_call")
"""As Qwen3-Coder, between `<seed:tool_call>` tags; ByteDance's Seed-OSS."""

GLM = Tags(
    call=r"<tool_call>\s*([\w.:/-]+)\s*(?=<arg_key>|</tool_call>)",
    parameter=r"<arg_key>(?P<key>[^<]*)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
    r"(?=\s*(?:<arg_key>|</tool_call>))",
    end="</tool_call>",
)
"""`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`.

Z.ai's GLM 4.5 to 4.7."""

MINIMAX_M2 = _invoked("", around=r"</?minimax:tool_call>")
"""`<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>…`;
MiniMax M2."""

DEEPSEEK_V32 = _invoked("｜DSML｜", around=r"</?｜DSML｜function_calls>")
"""`<｜DSML｜invoke name="NAME">`, `<｜DSML｜parameter name="KEY" string="true">VALUE` and so on.

Within `<｜DSML｜function_calls>`; what is no string is JSON. DeepSeek V3.2."""

DEEPSEEK_V4 = _invoked("｜DSML｜", "<｜DSML｜tool_calls>", r"</?｜DSML｜tool_calls>")
"""As V3.2, within `<｜DSML｜tool_calls>`; DeepSeek V4."""

ATEM = _invoked("atem:", around=r"</?atem:function_calls>")
"""`<atem:invoke name="NAME"><atem:parameter name="KEY">VALUE</atem:parameter></atem:invoke>`."""
