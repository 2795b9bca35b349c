"""What a chat template is told besides the messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from podium.core.openai_messages import tools_to_openai
from podium.core.outside import struct_of
from podium.core.text_tools import describe
from podium.core.tool_formats import TEXT
from podium.types.v1 import trajectory_pb2 as pb

_STAND_IN = pb.Tool(
    name="look",
    description="Looks at something.",
    parameters=struct_of(
        {
            "type": "object",
            "properties": {"at": {"type": "integer", "description": "What to look at."}},
            "required": ["at"],
        }
    ),
)


@dataclass(frozen=True)
class TemplateWorld:
    """The tools, how calls are written, and arguments of the template's own."""

    tools: Sequence[pb.Tool]
    call_format: str
    arguments: Mapping[str, Any]

    @cached_property
    def plain_tools(self) -> list[dict[str, Any]] | None:
        """As templates take them."""
        return tools_to_openai(() if self.call_format == TEXT else self.tools) or None

    @cached_property
    def described(self) -> str:
        """What a model whose template has no tools is told of them."""
        return describe(self.tools)

    @cached_property
    def key(self) -> str:
        """The same for those in which a template behaves in the same way."""
        told = [self.call_format, bool(self.tools), self.arguments]
        return json.dumps(told, sort_keys=True)

    def with_stand_in(self) -> TemplateWorld:
        """With one small tool, made plain once, in the place of all."""
        return replace(self, tools=[_STAND_IN] if self.tools else [])
