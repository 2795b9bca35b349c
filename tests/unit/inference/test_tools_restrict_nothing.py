"""Tools restrict no answer of a rollout: what is sampled under a grammar cannot train."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from podium_inference.adapters.http.capture import untrainable, wanted
from support.sampling_params import Params

SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}


def under_a_grammar(**fields: Any) -> Params:
    """As vLLM makes them of a request with `strict` tools, or that wants one call, or any."""
    given = {"structural_tag": "{}", "json": None, **fields}
    return Params(structured_outputs=SimpleNamespace(**given))


@pytest.mark.parametrize(
    "request_fields",
    [
        {},
        {"tool_choice": "auto", "parallel_tool_calls": False},
        {"tool_choice": "required", "response_format": {"type": "text"}},
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"text": {"format": {"type": "text"}}, "output_config": {"effort": "low"}},
        {"text": 3, "response_format": None, "tool_choice": {"type": "auto"}},
    ],
)
def test_a_call_with_strict_tools_trains(request_fields: dict[str, Any]) -> None:
    given = under_a_grammar()
    params = wanted(given, request_fields)
    assert untrainable(params) == ""
    assert params.logprobs == 0
    assert given.structured_outputs is not None


@pytest.mark.parametrize(
    ("params", "request_fields"),
    [
        (under_a_grammar(), {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        (under_a_grammar(), {"tool_choice": {"type": "tool", "name": "look"}}),
        (under_a_grammar(), {"response_format": SCHEMA}),
        (under_a_grammar(), {"text": {"format": SCHEMA}}),
        (under_a_grammar(), {"output_config": {"format": SCHEMA}}),
        (under_a_grammar(), {"structured_outputs": {"structural_tag": "{}"}}),
        (under_a_grammar(structural_tag=None, json="{}"), {}),
    ],
)
def test_what_a_request_itself_restricts_stays_and_does_not_train(
    params: Params, request_fields: dict[str, Any]
) -> None:
    params.logprobs = 2
    assert wanted(params, request_fields) is params
    assert untrainable(params) == "structured_outputs restricts the answer"
