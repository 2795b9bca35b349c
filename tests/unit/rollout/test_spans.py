"""An episode's trace: its own, linked to who asked for it, and silent about what was said."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from podium.environments import Observation, Tool, ToolCall, tool_result, user
from podium.environments.email_search import tutorial
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.kit.telemetry import attributes, content, tracer
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain import spans as episode_spans
from podium_rollout.domain.episode import Episode
from podium_rollout.domain.group import GroupRunner
from podium_rollout.domain.seeds import derive
from support.rollout import PolicyDouble, group_request, script
from support.stage import set_stage

TOOLS = (Tool("search", "Looks for words."),)
CALL = '<tool_call>{"name": "search", "arguments": {"q": "orchid"}}</tool_call>'
MADE_UP = '<tool_call>{"name": "xyzzy", "arguments": {}}</tool_call>'


async def play(request: rollout_pb.CollectGroupRequest, *replies: str) -> pb.Trajectory:
    policy = PolicyDouble(script(request, {0: replies}))
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    return trajectory


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name.startswith(name)]


async def test_s9_the_trace_tells_what_each_turn_was_asked_with(
    spans: InMemorySpanExporter,
) -> None:
    request = group_request()
    request.sampling.temperature = tutorial.TEMPERATURE
    request.sampling.max_tokens = tutorial.MAX_TOKENS
    trajectory = await play(request, "1", "4")
    turns = named(spans, "chat ")
    assert [span.attributes["podium.turn"] for span in turns] == [0, 1]
    for number, span in enumerate(turns):
        assert span.kind is SpanKind.CLIENT
        assert span.attributes["gen_ai.request.max_tokens"] == 150
        assert span.attributes["gen_ai.request.temperature"] == pytest.approx(0.7)
        assert span.attributes["gen_ai.request.model"] == f"{request.policy.job}@3"
        assert span.attributes["gen_ai.request.seed"] == derive(11, trajectory.id, number)
        assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
        # The engine's span has them: a trace's tokens are to be counted once.
        assert not [name for name in span.attributes if name.startswith("gen_ai.usage.")]
    (whole,) = named(spans, "invoke_agent ")
    assert whole.attributes["podium.trajectory.id"] == trajectory.id
    assert whole.attributes["podium.environment.name"] == request.environment.name
    assert whole.attributes["podium.stop_reason"] == "terminated"
    assert whole.attributes["podium.turns"] == 2
    assert whole.attributes["podium.environment.reward"] == 1.0


async def test_each_rollout_has_a_trace_of_its_own_linked_to_who_asked(
    spans: InMemorySpanExporter,
) -> None:
    request = group_request(attempts=3)
    policy = PolicyDouble(otherwise="4")
    runner = GroupRunner(Environments(), {"": policy}, 1)
    with tracer("test").start_as_current_span("collect") as asking:
        trajectories = [each async for each in runner.collect(request)]
    asked = asking.get_span_context()
    roots = {span.context.span_id: span for span in named(spans, "invoke_agent ")}
    assert len({each.trace_id for each in trajectories}) == len(roots) == 3
    for each in trajectories:
        root = roots[int(each.root_span_id, 16)]
        assert root.parent is None
        assert f"{root.context.trace_id:032x}" == each.trace_id != f"{asked.trace_id:032x}"
        assert [link.context.span_id for link in root.links] == [asked.span_id]
        mine = [
            s for s in spans.get_finished_spans() if s.context.trace_id == root.context.trace_id
        ]
        assert {s.parent.span_id for s in mine if s.parent} == {root.context.span_id}
        assert Counter(span.name for span in mine) == {
            "invoke_agent guess": 1,
            "environment_reset": 1,
            "chat guesser": 1,
            "environment_step": 1,
            "environment_score": 1,
        }


async def test_each_tool_call_has_a_span_and_made_up_names_none(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = tool_result(ToolCall("call00000", "search", "{}"), "a secret flower")
    set_stage(
        monkeypatch, Observation([user("Who?")], TOOLS), Observation([answer, user("?")], TOOLS)
    )
    await play(group_request(), CALL + MADE_UP, "done")
    assert [span.name for span in named(spans, "execute_tool")] == [
        "execute_tool search",
        "execute_tool _unknown",
    ]
    (step, _) = named(spans, "environment_step")
    for span in named(spans, "execute_tool"):
        assert span.parent.span_id == step.context.span_id
        assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert step.attributes["podium.tool_calls"] == 2
    assert "xyzzy" not in told(spans)


def told(spans: InMemorySpanExporter) -> str:
    """Everything that leaves with the spans."""
    return "\n".join(span.to_json() for span in spans.get_finished_spans())


SAID = ("Who grows it?", "orchid", "a secret flower")


@pytest.mark.parametrize(("value", "there"), [("", False), ("SPAN_ONLY", True), ("true", True)])
async def test_what_is_said_is_told_only_when_it_is_wanted(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, value: str, there: bool
) -> None:
    monkeypatch.setenv(content.VARIABLE, value)
    answer = tool_result(ToolCall("call00000", "search", "{}"), "a secret flower")
    asked = Observation([user("Who grows it?")], TOOLS)
    set_stage(monkeypatch, asked, Observation([answer], TOOLS))
    await play(group_request(), CALL, "Olm does.")
    assert [text in told(spans) for text in SAID] == [there] * 3
    if not there:
        return
    first, second = named(spans, "chat ")
    (user_said,) = json.loads(first.attributes["gen_ai.input.messages"])
    assert user_said == {"role": "user", "parts": [{"type": "text", "content": "Who grows it?"}]}
    _, called, result = json.loads(second.attributes["gen_ai.input.messages"])
    assert called["parts"][-1] == {
        "type": "tool_call",
        "id": "call00000",
        "name": "search",
        "arguments": '{"q": "orchid"}',
    }
    assert result["parts"][0]["response"] == "a secret flower"
    (reply,) = json.loads(second.attributes["gen_ai.output.messages"])
    assert reply["finish_reason"] == "stop"
    (tool,) = named(spans, "execute_tool")
    assert tool.attributes["gen_ai.tool.call.result"] == "a secret flower"
    (root,) = named(spans, "invoke_agent")
    assert json.loads(root.attributes["gen_ai.input.messages"]) == [user_said]
    assert "Olm does." in root.attributes["gen_ai.output.messages"]


async def test_a_failure_is_told_by_its_type_and_not_by_its_words(
    spans: InMemorySpanExporter,
) -> None:
    trajectory = await play(group_request(), "raise")
    assert "the wheel came off" in trajectory.failure.message
    assert "the wheel came off" not in told(spans)
    (root,) = named(spans, "invoke_agent")
    (step,) = named(spans, "environment_step")
    for span in (root, step):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes[attributes.ERROR_TYPE] == "RuntimeError"


def test_a_reason_of_a_newer_engine_breaks_no_episode_that_is_traced(
    spans: InMemorySpanExporter,
) -> None:
    with tracer("test").start_as_current_span("chat") as span:
        episode_spans.answered(span, inference_pb.Generation(finish_reason=99))  # type: ignore[arg-type]
    (told_of,) = spans.get_finished_spans()
    assert told_of.attributes["gen_ai.response.finish_reasons"] == ("unknown",)


@pytest.mark.parametrize(("turns", "told"), [(math.nan, 0), (math.inf, 10**12), (1e308, 10**12)])
def test_a_metric_turns_of_an_environment_breaks_no_episode_that_is_traced(
    spans: InMemorySpanExporter, turns: float, told: int
) -> None:
    with tracer("test").start_as_current_span("invoke_agent") as span:
        episode_spans.ended(span, [pb.Trajectory(metrics={"turns": turns})] * 2)
    (whole,) = spans.get_finished_spans()
    assert whole.attributes["podium.turns"] == told
