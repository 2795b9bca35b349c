"""Of several answers to one prompt the one that the agent went on with trains, over real HTTP."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import openai
import pytest
import pytest_asyncio
from podium.core.errors import FailedPreconditionError
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training import History, TrainableModel, Trajectory, TrajectoryGroup
from podium.training.batch import batch_of
from podium.training.histories import join
from podium.training.in_process import InProcessBackend
from podium.types.v1 import trajectory_pb2 as pb

Agent = Callable[[openai.AsyncOpenAI, Trajectory], Awaitable[None]]
USER: Any = {"role": "user", "content": "question"}


@pytest_asyncio.fixture
async def model() -> AsyncIterator[TrainableModel]:
    """Says answer-0, answer-1, …"""
    numbers = itertools.count()
    with InProcessBackend(lambda messages, step: f"answer-{next(numbers)}") as backend:
        made = TrainableModel(name="m", base_model="none")
        await made.register(backend)
        yield made


async def trained(model: TrainableModel, agent: Agent) -> pb.Trajectory:
    """What of a rollout of the agent's is submitted."""
    client = model.openai_client()

    async def rollout() -> Trajectory:
        trajectory = Trajectory(reward=1.0)
        await agent(client, trajectory)
        return trajectory

    (group,) = batch_of([await TrajectoryGroup([rollout()])], model.name)
    return group.trajectories[0]


def sampled(trajectory: pb.Trajectory) -> list[str]:
    """The words of what trains."""
    found = []
    for history in trajectory.histories:
        for span in history.tokens.spans:
            ids = list(history.tokens.token_ids)[span.start : span.start + span.length]
            found.append(bytes(ids[:-1]).decode())
    return found


async def ask(client: openai.AsyncOpenAI, *messages: Any, n: int = 1) -> list[Any]:
    answer = await client.chat.completions.create(model="m", messages=messages, n=n)
    return answer.choices


async def test_the_choice_that_was_noted_trains(model: TrainableModel) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        choices = await ask(client, USER, n=4)
        trajectory.messages_and_choices = [USER, choices[2]]

    assert sampled(await trained(model, agent)) == ["answer-2"]


async def test_a_choice_that_was_noted_beside_trains(model: TrainableModel) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        choices = await ask(client, USER, n=4)
        plain = {"role": "assistant", "content": f"  {choices[3].message.content}\n"}
        trajectory.additional_histories = [History(messages_and_choices=[USER, plain])]

    assert sampled(await trained(model, agent)) == ["answer-3"]


async def test_the_choice_that_the_next_request_holds_trains(model: TrainableModel) -> None:
    """Also where its tokens are not the next prompt's: here the agent has changed its spaces."""

    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        choices = await ask(client, USER, n=4)
        plain = {"role": "assistant", "content": f"{choices[1].message.content} "}
        await ask(client, USER, plain, {"role": "user", "content": "go on"})

    found = await trained(model, agent)
    assert sampled(found) == ["answer-1", "answer-4"]
    assert found.metrics["unused_answers"] == 3
    assert found.metrics["history_splits"] == 1


async def test_a_choice_in_a_conversation_that_was_compacted_trains(model: TrainableModel) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        choices = await ask(client, USER, n=3)
        plain = {"role": "assistant", "content": choices[1].message.content}
        await ask(client, {"role": "user", "content": "So far:"}, plain, USER)

    assert sampled(await trained(model, agent)) == ["answer-1", "answer-3"]


async def test_where_nothing_tells_none_trains_and_it_is_said(
    model: TrainableModel, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        first = await ask(client, USER)
        plain = {"role": "assistant", "content": first[0].message.content}
        await ask(client, USER, plain, {"role": "user", "content": "vote"}, n=4)

    with caplog.at_level(logging.WARNING):
        found = await trained(model, agent)
    assert sampled(found) == ["answer-0"]
    assert found.metrics["untold_choices"] == 1
    (warning,) = caplog.records
    assert "put it into messages_and_choices" in warning.getMessage()

    async def votes(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        await ask(client, USER, n=4)

    with pytest.raises(FailedPreconditionError, match="put it into messages_and_choices"):
        await trained(model, votes)


async def test_choices_that_all_say_the_same_count_as_one() -> None:
    with InProcessBackend(lambda messages, step: "yes") as backend:
        made = TrainableModel(name="m", base_model="none")
        await made.register(backend)

        async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
            await ask(client, USER, n=4)

        assert sampled(await trained(made, agent)) == ["yes"]


@pytest.mark.parametrize("note", [False, True])
async def test_a_request_sent_again_without_a_header_trains_what_went_on(
    model: TrainableModel, note: bool
) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        await ask(client, USER)
        (second,) = await ask(client, USER)
        plain = {"role": "assistant", "content": second.message.content}
        if note:
            trajectory.messages_and_choices = [USER, plain]
        else:
            await ask(client, USER, plain, {"role": "user", "content": "go on"})

    assert sampled(await trained(model, agent)) == ["answer-1", "answer-2"][: 1 if note else 2]


async def test_the_last_of_a_request_that_was_sent_again_is_what_was_waited_for(
    model: TrainableModel,
) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        await ask(client, USER)
        await ask(client, USER)
        await ask(client, USER)

    found = await trained(model, agent)
    assert sampled(found) == ["answer-2"]
    assert found.metrics["unused_answers"] == 2


async def test_the_first_trains_where_it_is_what_went_on(model: TrainableModel) -> None:
    async def agent(client: openai.AsyncOpenAI, trajectory: Trajectory) -> None:
        (first,) = await ask(client, USER)
        await ask(client, USER)
        plain = {"role": "assistant", "content": first.message.content}
        await ask(client, USER, plain, {"role": "user", "content": "go on"})

    assert sampled(await trained(model, agent)) == ["answer-0", "answer-2"]


def call(
    number: int, said: Sequence[str], *, began: int = 0, ended: int = 0, retokenised: int = 0
) -> inference_pb.CapturedCall:
    """One whose conversation says these in turn; `retokenised` prompts begin otherwise."""
    roles = itertools.cycle((pb.ROLE_USER, pb.ROLE_ASSISTANT))
    ids = [retokenised, *(len(text) for text in said)]
    made = inference_pb.CapturedCall(
        messages=[
            pb.Message(role=role, content=text) for role, text in zip(roles, said, strict=False)
        ],
        prompt_token_ids=ids,
        reply=pb.Message(role=pb.ROLE_ASSISTANT, content=f"a{number}"),
        temperature=1.0,
        generation=inference_pb.Generation(
            token_ids=[2],
            logprobs=[-1.0],
            policy="m",
            request_id=str(number),
            finish_reason=pb.FINISH_REASON_STOP,
        ),
    )
    if ended:
        made.start_time.FromSeconds(began)
        made.end_time.FromSeconds(ended)
    return made


def test_requests_that_are_out_at_once_all_train() -> None:
    """Votes, and no request sent again: each began before an answer was there."""
    at_once = [call(n, ["q"], began=10 + n, ended=20 + n) for n in range(3)]
    assert len(join(at_once, "m").histories) == 3
    in_turn = [call(n, ["q"], began=10 * n + 1, ended=10 * n + 9) for n in range(3)]
    (last,) = join(in_turn, "m").histories
    assert last.messages[-1].content == "a2"


def test_prompts_that_go_on_in_other_tokens_are_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said, calls = ["q"], []
    for turn in range(20):
        calls.append(call(turn, said, retokenised=turn))
        said = [*said, f"a{turn}", "go on"]
    joined = join(calls, "m")
    assert (len(joined.histories), joined.splits) == (20, 19)
    attempt = Trajectory(reward=1.0).attach(calls)
    with caplog.at_level(logging.WARNING):
        (group,) = batch_of([TrajectoryGroup([attempt], metadata={"scenario_id": "s1"})], "m")
    assert group.trajectories[0].metrics["history_splits"] == 19
    (warning,) = caplog.records
    assert "an attempt at s1: 19 of its calls" in warning.getMessage()
    assert "20 histories hold 440 tokens, of which 20 were sampled" in warning.getMessage()


def test_what_is_no_retokenisation_is_not_counted_as_one() -> None:
    """A conversation that goes on, a branch of it, another one, choices."""
    calls = [
        call(0, ["q"]),
        call(1, ["q", "a0", "go on"]),
        call(2, ["q", "a0", "elsewhere"]),
        call(3, ["another"]),
        call(4, ["q", "a0", "elsewhere"]),
    ]
    assert join(calls, "m").splits == 0
