"""How model families write tool calls: one pure function a format.

Each takes a whole reply, and what the tools say of their arguments. What it cannot read
stays in the content and is told in `malformed`, in words for the model; nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from podium.core.tool_formats import json_calls, marked_calls, python_calls, xml_calls
from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.channel_calls import harmony, muse_glimmer
from podium.core.tool_formats.gemma_calls import FUNCTIONGEMMA, GEMMA4
from podium.core.tool_formats.reading import Call, ParsedReply

__all__ = ["FORMATS", "SPECIAL", "TEXT", "Call", "ParsedReply", "Types"]

TEXT = "text"

FORMATS: Mapping[str, Callable[[str, Types], ParsedReply]] = {
    TEXT: json_calls.text,
    "hermes": json_calls.HERMES,
    "llama3_json": json_calls.llama3_json,
    "mistral": marked_calls.mistral,
    "kimi_k2": marked_calls.kimi_k2,
    # Reads less than V3's, and is tried before it.
    "deepseek_v31": marked_calls.deepseek_v31,
    "deepseek_v3": marked_calls.deepseek_v3,
    "deepseek_v4": xml_calls.DEEPSEEK_V4,
    "deepseek_v32": xml_calls.DEEPSEEK_V32,
    "qwen3_coder": xml_calls.QWEN3_CODER,
    "seed_oss": xml_calls.SEED_OSS,
    "glm45": xml_calls.GLM,
    "minimax_m2": xml_calls.MINIMAX_M2,
    "muse_glimmer": muse_glimmer,
    "openai": harmony,
    "gemma4": GEMMA4,
    "functiongemma": FUNCTIONGEMMA,
    "lfm2": python_calls.lfm2,
    "olmo3": python_calls.olmo3,
    "pythonic": python_calls.pythonic,
    # Reads less than Granite's, and is tried before it.
    "phi4_mini_json": json_calls.PHI4_MINI,
    "granite": json_calls.GRANITE,
    "cohere_command3": json_calls.COHERE,
    "jamba": json_calls.JAMBA,
    "internlm": json_calls.INTERNLM,
    "apertus": json_calls.APERTUS,
    "longcat": json_calls.LONGCAT,
}
"""By the names that vLLM's parsers have; `text` is Podium's own."""

SPECIAL = frozenset(FORMATS) - {TEXT, "hermes", "qwen3_coder", "olmo3", "pythonic", "jamba"}
"""Formats whose signs are special tokens, which decoding leaves out unless told otherwise."""
