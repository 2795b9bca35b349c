"""Several histories in a trajectory: sub-agents, and conversations that begin anew."""

from __future__ import annotations

import re

import numpy as np
import pytest
from podium.environments import (
    Observation,
    StepResult,
    Tool,
    ToolCall,
    anew,
    system,
    to,
    tool_result,
    user,
)
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_judge.domain.transcript import attempt_of, show
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.conversation import Conversations
from podium_rollout.domain.episode import Episode
from podium_trainer.domain.samples import Sample, read_samples
from support.rollout import PolicyDouble, encode, group_request, sampled_ids, script
from support.stage import set_stage

DELEGATE, SEARCH = Tool("delegate", "Has somebody search."), Tool("search", "Searches.")
CALL = '<tool_call>{"name": "delegate", "arguments": {}}</tool_call>'


async def play(request: rollout_pb.CollectGroupRequest, replies: list[str]) -> pb.Trajectory:
    policy = PolicyDouble(script(request, {0: replies}))
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    return trajectory


def said(content: str, role: pb.Role.ValueType = pb.ROLE_USER) -> pb.Message:
    return pb.Message(role=role, content=content)


def words(history: pb.History) -> list[str]:
    return [message.content for message in history.messages]


async def with_a_sub_agent(monkeypatch: pytest.MonkeyPatch) -> pb.Trajectory:
    told = set_stage(
        monkeypatch,
        Observation([user("Who is Olm?")], [DELEGATE]),
        Observation(to("searcher", system("You search."), user("Find Olm.")), [SEARCH]),
        Observation(to("searcher", user("Nothing yet.")), [SEARCH]),
        Observation([tool_result(ToolCall("call00000", "delegate", ""), "a novel")], [DELEGATE]),
    )
    trajectory = await play(group_request(), [CALL, "look up", "it is a novel", "A novel."])
    assert [action.conversation for action in told] == ["", "searcher", "searcher", ""]
    return trajectory


async def test_t20_a_sub_agent_talks_in_a_history_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trajectory = await with_a_sub_agent(monkeypatch)
    main, searcher = trajectory.histories
    assert [h.conversation for h in trajectory.histories] == ["", "searcher"]
    assert [h.tools[0].name for h in trajectory.histories] == ["delegate", "search"]
    assert words(main) == ["Who is Olm?", "", "a novel", "A novel."]
    assert words(searcher) == [
        "You search.",
        "Find Olm.",
        "look up",
        "Nothing yet.",
        "it is a novel",
    ]
    assert list(main.tokens.token_ids) == [
        *encode([said("Who is Olm?")], [pb.Tool(name="delegate")]),
        *sampled_ids(CALL),
        *encode([said("a novel", pb.ROLE_TOOL)]),
        *sampled_ids("A novel."),
    ]
    assert list(searcher.tokens.token_ids) == [
        *encode([said("You search.", pb.ROLE_SYSTEM), said("Find Olm.")], [pb.Tool(name="search")]),
        *sampled_ids("look up"),
        *encode([said("Nothing yet.")]),
        *sampled_ids("it is a novel"),
    ]
    assert trajectory.metrics["turns"] == 4
    assert trajectory.environment_reward == 1.0
    assert not any(m.conversation or m.begins_history for h in (main, searcher) for m in h.messages)


async def test_t20_all_its_histories_train_with_its_one_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trajectory = await with_a_sub_agent(monkeypatch)
    samples = read_samples(trajectory, vocabulary=1000, max_tokens=10_000)
    assert isinstance(samples, list)
    expected = [[CALL, "A novel."], ["look up", "it is a novel"]]
    for sample, replies in zip(samples, expected, strict=True):
        assert isinstance(sample, Sample)
        assert list(sample.targets) == [i for reply in replies for i in sampled_ids(reply)]
        assert np.isfinite(sample.logprobs).all()


async def test_ruler_shows_the_conversations_in_the_order_in_which_they_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = "\n".join(show(attempt_of(await with_a_sub_agent(monkeypatch)), 0))
    places = [
        shown.index(text)
        for text in ("[conversation 1 of 2]", "A novel.", "[conversation 2 of 2]", "You search.")
    ]
    assert places == sorted(places)


async def test_t20_a_conversation_that_begins_anew_forgets_and_both_histories_train(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_stage(
        monkeypatch,
        Observation([user("A long story.")]),
        Observation(anew(system("So far: much."), user("And then?"))),
        Observation([user("And last?")]),
    )
    trajectory = await play(group_request(), ["one", "two", "three"])
    first, second = trajectory.histories
    assert list(first.tokens.token_ids) == [*encode([said("A long story.")]), *sampled_ids("one")]
    assert list(second.tokens.token_ids) == [
        *encode([said("So far: much.", pb.ROLE_SYSTEM), said("And then?")]),
        *sampled_ids("two"),
        *encode([said("And last?")]),
        *sampled_ids("three"),
    ]
    samples = read_samples(trajectory, vocabulary=1000, max_tokens=10_000)
    assert isinstance(samples, list)
    assert [len(sample.targets) for sample in samples] == [4, 4 + 6]


async def test_a_sub_agent_goes_on_where_it_was_unless_it_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_stage(
        monkeypatch,
        Observation([user("main")]),
        Observation(to("helper", user("first"))),
        Observation([user("back")]),
        Observation(to("helper", user("second"))),
        Observation(to("helper", *anew(user("third")))),
    )
    trajectory = await play(group_request(), list("abcde"))
    assert [(h.conversation, words(h)) for h in trajectory.histories] == [
        ("", ["main", "a", "back", "c"]),
        ("helper", ["first", "b", "second", "d"]),
        ("helper", ["third", "e"]),
    ]


@pytest.mark.parametrize("name", ["agent", "two words", "Upper", "a/b", "x" * 65])
async def test_an_impossible_name_fails_the_attempt(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_stage(monkeypatch, Observation([user("?")]), Observation(to(name, user("?"))))
    trajectory = await play(group_request(), ["a", "b"])
    assert trajectory.stop_reason == pb.STOP_REASON_FAILED
    assert trajectory.failure.message.startswith(f"a message is of conversation {name!r}")


async def test_a_result_for_calls_that_were_forgotten_fails_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = tool_result(ToolCall("call00000", "delegate", ""), "a novel")
    set_stage(
        monkeypatch,
        Observation([user("?")], [DELEGATE]),
        StepResult(Observation([*anew(user("Anew.")), answer], [DELEGATE])),
    )
    trajectory = await play(group_request(), [CALL, "b"])
    assert trajectory.failure.message == (
        "a tool result answers call 'call00000'; calls without a result are none"
    )


@pytest.mark.parametrize(
    ("message", "tool", "says"),
    [
        (pb.Message(content="?"), pb.Tool(name="t"), "a message breaks the contract: role"),
        (
            pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[pb.ToolCall(name="n" * 257)]),
            pb.Tool(name="t"),
            "tool_calls[0].name got 257 characters",
        ),
        (said("?"), pb.Tool(), "a tool breaks the contract: name is required"),
    ],
)
def test_what_no_service_would_take_is_the_environments_failure(
    message: pb.Message, tool: pb.Tool, says: str
) -> None:
    """As a served environment in another language may answer."""
    conversations = Conversations(spec_pb2.EpisodeSpec(tool_format=spec_pb2.TOOL_FORMAT_AUTO))
    with pytest.raises(ValueError, match=re.escape(says)):
        conversations.observe([message], [tool])
