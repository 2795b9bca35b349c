"""Tool calls between a policy and an environment."""

from __future__ import annotations

import pytest
from podium.environments import Observation, Tool, ToolCall, tool_result, user
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain import metrics
from podium_rollout.domain.episode import Episode
from support.rollout import PolicyDouble, encode, group_request, sampled_ids, script
from support.stage import set_stage

TOOLS = (Tool("search", "Looks for words."), Tool("read", "Reads a page."))
QUESTION = Observation([user("Who is Olm?")], TOOLS)


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


async def play(
    request: rollout_pb.CollectGroupRequest, replies: list[str], parser: str = ""
) -> pb.Trajectory:
    policy = PolicyDouble(script(request, {0: replies}), reasoning_parser=parser)
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    return trajectory


def result(call_id: str, content: str) -> Observation:
    return Observation([tool_result(ToolCall(call_id, "search", "{}"), content)], TOOLS)


def lines(trajectory: pb.Trajectory) -> list[tuple[int, str, str]]:
    (history,) = trajectory.histories
    return [(m.role, m.content, m.tool_call_id) for m in history.messages]


async def test_t20_all_calls_of_a_turn_reach_the_environment_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = [hermes("search", '{"q": 1}'), hermes("read", '{"id": 2}'), hermes("search", "{}")]
    # Answered in another order than they were made in.
    answers = [
        tool_result(ToolCall(f"call0000{number}", "search", "{}"), f"answer {number}")
        for number in (2, 0, 1)
    ]
    told = set_stage(
        monkeypatch,
        QUESTION,
        Observation([*answers, user("Well?")], TOOLS),
        result("call00003", "again"),
    )
    trajectory = await play(group_request(), ["".join(calls), hermes("read", "{}"), "done"])
    assert [[c.name for c in action.tool_calls] for action in told] == [
        ["search", "read", "search"],
        ["read"],
        [],
    ]
    assert [c.id for c in told[0].tool_calls] == ["call00000", "call00001", "call00002"]
    assert lines(trajectory)[2:6] == [
        (pb.ROLE_TOOL, "answer 0", "call00000"),
        (pb.ROLE_TOOL, "answer 1", "call00001"),
        (pb.ROLE_TOOL, "answer 2", "call00002"),
        (pb.ROLE_USER, "Well?", ""),
    ]
    # The model reads them in that order too, and its own words are what it sampled.
    shown = [encode_tool("answer 0"), encode_tool("answer 1"), encode_tool("answer 2")]
    ids = list(trajectory.histories[0].tokens.token_ids)
    first = [*encode(pb_messages(QUESTION), pb_tools()), *sampled_ids("".join(calls))]
    assert ids[: len(first)] == first
    assert bytes(ids[len(first) :][: len(b"".join(shown))]) == b"".join(shown)
    assert trajectory.metrics["malformed_calls"] == 0


def encode_tool(content: str) -> bytes:
    return f"<{pb.ROLE_TOOL}>{content}\n".encode()


def pb_messages(observation: Observation) -> list[pb.Message]:
    return [pb.Message(role=pb.ROLE_USER, content=m.content) for m in observation.messages]


def pb_tools() -> list[pb.Tool]:
    return [pb.Tool(name=tool.name) for tool in TOOLS]


@pytest.mark.parametrize("ids", [["call00001"], ["call00000", "call00000"], [""]])
async def test_a_result_that_answers_no_open_call_fails_the_attempt(
    ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [tool_result(ToolCall(each, "search", "{}"), "?") for each in ids]
    set_stage(monkeypatch, QUESTION, Observation(answers, TOOLS))
    trajectory = await play(group_request(), [hermes("search", "{}"), "done"])
    assert trajectory.stop_reason == pb.STOP_REASON_FAILED
    assert trajectory.failure.message == (
        f"a tool result answers call {ids[-1]!r}; calls without a result are 'call00000'"
    )


async def test_a_call_that_cannot_be_read_is_told_to_the_model_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = metrics.MALFORMED_CALLS.labels("guess")._value.get()
    told = set_stage(
        monkeypatch,
        QUESTION,
        result("call00000", "a novel"),
        Observation([user("Unknown action.")], TOOLS),
    )
    bad = "<tool_call>{name}</tool_call>"
    trajectory = await play(group_request(), [hermes("search", "{}") + bad, bad, "done"])
    assert [len(action.malformed_calls) for action in told] == [1, 1, 0]
    assert told[1].content == bad
    (why,) = told[1].malformed_calls
    error = f"Error: a call could not be read: {why}."
    assert lines(trajectory)[2:4] == [
        (pb.ROLE_TOOL, "a novel", "call00000"),
        (pb.ROLE_USER, error, ""),
    ]
    # Before the environment's words, as one message: some templates take no two in a row.
    assert lines(trajectory)[5] == (pb.ROLE_USER, f"{error}\nUnknown action.", "")
    assert trajectory.metrics["malformed_calls"] == 2
    assert metrics.MALFORMED_CALLS.labels("guess")._value.get() == before + 2
    assert trajectory.stop_reason == pb.STOP_REASON_TERMINATED


async def test_a_job_may_have_calls_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    told = set_stage(monkeypatch, QUESTION, result("call00000", "a novel"))
    request = group_request(tool_format=spec_pb2.TOOL_FORMAT_TEXT)
    trajectory = await play(request, ['call: search {"q": "Olm"}', hermes("search", "{}")])
    assert [(c.name, c.arguments_json) for c in told[0].tool_calls] == [("search", '{"q": "Olm"}')]
    assert told[1].content == hermes("search", "{}")
    assert len(trajectory.histories) == 1


async def test_tools_that_change_are_told_in_a_new_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_stage(monkeypatch, QUESTION, Observation([user("Only reading now.")], TOOLS[1:]))
    trajectory = await play(group_request(), ["hm", "done"])
    first, second = trajectory.histories
    assert [tool.name for tool in first.tools] == ["search", "read"]
    assert [tool.name for tool in second.tools] == ["read"]
    conversation = [*pb_messages(QUESTION), pb.Message(role=pb.ROLE_ASSISTANT, content="hm")]
    conversation.append(pb.Message(role=pb.ROLE_USER, content="Only reading now."))
    expected = [*encode(conversation, [pb.Tool(name="read")]), *sampled_ids("done")]
    assert list(second.tokens.token_ids) == expected


async def test_an_environment_is_given_the_answer_and_not_what_was_thought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = set_stage(monkeypatch, QUESTION, result("call00000", "a novel"))
    thought = f"<think>Not {hermes('read', '{}')}</think>"
    replies = [thought + hermes("search", "{}"), "<think>Now.</think>done"]
    trajectory = await play(group_request(), replies, parser="qwen3")
    assert [[call.name for call in action.tool_calls] for action in told] == [["search"], []]
    assert [action.content for action in told] == ["", "done"]
    kept = [m.reasoning for m in trajectory.histories[0].messages if m.HasField("reasoning")]
    assert kept == [f"Not {hermes('read', '{}')}", "Now."]
    # What was sampled is in the record as it was.
    assert list(trajectory.histories[0].tokens.token_ids[-len(sampled_ids(replies[1])) :]) == (
        sampled_ids(replies[1])
    )
