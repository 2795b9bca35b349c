"""Tool calls as models of each family write them, made without the product's code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Calls = Sequence[tuple[str, Mapping[str, Any]]]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _each(one: Callable[[str, Mapping[str, Any]], str], between: str = "\n") -> Callable[..., str]:
    return lambda calls: between.join(one(name, arguments) for name, arguments in calls)


def _list(opening: str, closing: str, *keys: str) -> Callable[[Calls], str]:
    def written(calls: Calls) -> str:
        found = [{keys[0]: name, keys[1]: arguments} for name, arguments in calls]
        return f"{opening}{_json(found)}{closing}"

    return written


def _object(name: str, arguments: Mapping[str, Any], key: str = "arguments") -> str:
    return _json({"name": name, key: arguments})


def _qwen(name: str, arguments: Mapping[str, Any]) -> str:
    inner = "".join(f"<parameter={k}>\n{_text(v)}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def _glm(name: str, arguments: Mapping[str, Any]) -> str:
    inner = "".join(
        f"<arg_key>{k}</arg_key>\n<arg_value>{_text(v)}</arg_value>\n" for k, v in arguments.items()
    )
    return f"<tool_call>{name}\n{inner}</tool_call>"


def _invoke(prefix: str, told: bool = False) -> Callable[[str, Mapping[str, Any]], str]:
    def written(name: str, arguments: Mapping[str, Any]) -> str:
        inner = ""
        for key, value in arguments.items():
            kind = f' string="{_json(isinstance(value, str))}"' if told else ""
            tag = f'<{prefix}parameter name="{key}"{kind}>'
            inner += f"{tag}{_text(value)}</{prefix}parameter>\n"
        return f'<{prefix}invoke name="{name}">\n{inner}</{prefix}invoke>'

    return written


def _within(opening: str, closing: str, inner: Callable[[Calls], str]) -> Callable[[Calls], str]:
    return lambda calls: f"{opening}{inner(calls)}{closing}"


def _python(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _braces(quote: str) -> Callable[[Any], str]:
    def written(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, Mapping):
            return "{" + ",".join(f"{k}:{written(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(written, value)) + "]"
        return _json(value)

    return written


def _gemma(opening: str, closing: str, quote: str) -> Callable[[Calls], str]:
    value = _braces(quote)
    return _each(lambda name, given: f"{opening}call:{name}{value(given)}{closing}", "")


def _mark(pattern: str) -> Callable[[Calls], str]:
    """`@` for the name, `%` for the arguments."""
    return _each(lambda name, given: pattern.replace("@", name).replace("%", _json(given)))


_V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>@\n```json\n%\n```<｜tool▁call▁end｜>"
_V31 = "<｜tool▁call▁begin｜>@<｜tool▁sep｜>%<｜tool▁call▁end｜>"
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DSML = _each(_invoke("｜DSML｜", told=True))
_KIMI = "<|tool_call_begin|>functions.@:0<|tool_call_argument_begin|>%<|tool_call_end|>"
_HARMONY = "<|channel|>commentary to=functions.@ <|constrain|>json<|message|>%<|call|>"

WRITTEN: Mapping[str, Callable[[Calls], str]] = {
    "text": _mark("call: @ %"),
    "hermes": _each(lambda name, given: f"<tool_call>\n{_object(name, given)}\n</tool_call>"),
    "llama3_json": _each(lambda name, given: _object(name, given, "parameters"), "; "),
    "mistral": _mark("[TOOL_CALLS]@[ARGS]%"),
    "kimi_k2": _within("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", _mark(_KIMI)),
    "deepseek_v3": _within(*_DEEPSEEK, _mark(_V3)),
    "deepseek_v31": _within(*_DEEPSEEK, _mark(_V31)),
    "deepseek_v32": _within("<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>", _DSML),
    "deepseek_v4": _within("<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>", _DSML),
    "qwen3_coder": _each(_qwen),
    "seed_oss": lambda calls: _each(_qwen)(calls).replace("tool_call>", "seed:tool_call>"),
    "glm45": _each(_glm),
    "minimax_m2": _within("<minimax:tool_call>\n", "\n</minimax:tool_call>", _each(_invoke(""))),
    "muse_glimmer": _each(
        lambda name, given: (
            f"<|start|>assistant to={name}<|message|><atem:function_calls>\n"
            f"{_invoke('atem:')(name, given)}\n</atem:function_calls><|eom|>"
        ),
        "",
    ),
    "openai": lambda calls: _mark(_HARMONY)(calls).replace("\n", "<|start|>assistant"),
    "gemma4": _gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    "lfm2": _within("<|tool_call_start|>[", "]<|tool_call_end|>", _each(_python, ", ")),
    "olmo3": _within("<function_calls>\n", "\n</function_calls>", _each(_python)),
    "pythonic": _within("[", "]", _each(_python, ", ")),
    "granite": _list("<|tool_call|>", "", "name", "arguments"),
    "phi4_mini_json": _list("functools", "", "name", "arguments"),
    "cohere_command3": _list("<|START_ACTION|>", "<|END_ACTION|>", "tool_name", "parameters"),
    "jamba": _list("<tool_calls>", "</tool_calls>", "name", "arguments"),
    "internlm": _each(
        lambda name, given: (
            f"<|action_start|><|plugin|>\n{_object(name, given, 'parameters')}<|action_end|>"
        )
    ),
    "apertus": lambda calls: (
        f"<|tools_prefix|>{_json([{name: given} for name, given in calls])}<|tools_suffix|>"
    ),
    "longcat": _each(
        lambda name, given: f"<longcat_tool_call>\n{_object(name, given)}\n</longcat_tool_call>"
    ),
}
"""By the format's name: a turn of these calls."""

ALONE = frozenset({"llama3_json", "pythonic"})
"""Formats whose calls are the whole reply."""
