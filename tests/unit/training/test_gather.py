"""Many rollouts at once: each with its own calls, failures within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import podium
import pytest
import pytest_asyncio
from podium.core.errors import DataLossError
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training import (
    TrainableModel,
    Trajectory,
    TrajectoryGroup,
    gather_trajectories,
    gather_trajectory_groups,
)
from podium.training.batch import batch_of
from podium.training.in_process import InProcessBackend


def parrot(messages: list[dict[str, Any]], step: int) -> str:
    return f"{messages[-1]['content']}!"


@pytest_asyncio.fixture
async def model() -> AsyncIterator[TrainableModel]:
    with InProcessBackend(parrot) as backend:
        made = TrainableModel(name="parrot", base_model="none")
        await made.register(backend)
        yield made


async def talk(
    model: TrainableModel, client: openai.AsyncOpenAI, name: str, turns: int
) -> Trajectory:
    trajectory = Trajectory(reward=float(turns))
    messages: list[Any] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{name}/{turn}"})
        answer = await client.chat.completions.create(model=model.name, messages=messages)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    return trajectory


async def fail(after: float = 0.0) -> Trajectory:
    await asyncio.sleep(after)
    raise KeyError("nothing there")


async def succeed(reward: float = 1.0) -> Trajectory:
    return Trajectory(reward=reward)


async def test_one_client_serves_all_and_every_rollout_has_its_own_calls(
    model: TrainableModel,
) -> None:
    async with model.openai_client() as client:
        groups = await gather_trajectory_groups(
            TrajectoryGroup(talk(model, client, f"{g}/{t}", t + 1) for t in range(4))
            for g in range(5)
        )
    for g, group in enumerate(groups):
        assert [trajectory.reward for trajectory in group] == [1, 2, 3, 4]
        for t, trajectory in enumerate(group):
            asked = [call.messages[-1].content for call in trajectory.calls]
            assert asked == [f"{g}/{t}/{turn}" for turn in range(t + 1)]
            assert trajectory.messages()[-1]["content"] == f"{g}/{t}/{t}!"


async def test_clients_of_ones_own_take_the_key_inside_the_rollout(model: TrainableModel) -> None:
    async def own(name: str) -> Trajectory:
        async with openai.AsyncOpenAI(
            base_url=model.inference_base_url, api_key=model.inference_api_key
        ) as client:
            return await talk(model, client, name, 1)

    def threaded(name: str) -> None:
        with openai.OpenAI(
            base_url=model.inference_base_url, api_key=model.inference_api_key
        ) as client:
            message: Any = {"role": "user", "content": name}
            client.chat.completions.create(model=model.name, messages=[message])

    async def in_a_thread(name: str) -> Trajectory:
        await asyncio.to_thread(threaded, name)
        return Trajectory()

    first, second = await gather_trajectories([own("a"), in_a_thread("b")])
    assert [len(first.calls), len(second.calls)] == [1, 1]
    assert second.messages() == [
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "b!"},
    ]


async def test_agents_get_a_signature_in_place_of_the_token(model: TrainableModel) -> None:
    model.api_token = "the-token"
    keys = []

    async def noted(name: str) -> Trajectory:
        keys.append(model.inference_api_key)
        async with model.openai_client() as client:
            return await talk(model, client, name, 1)

    (trajectory,) = await gather_trajectories([noted("a")])
    assert len(trajectory.calls) == 1
    assert "the-token" not in keys[0]
    assert model.inference_api_key == "the-token"


async def test_calls_outside_of_rollouts_belong_to_nobody(model: TrainableModel) -> None:
    async with model.openai_client() as client:
        await talk(model, client, "nobody", 1)
        async with model.rollout(reward=2.0) as trajectory:
            await talk(model, client, "somebody", 2)
        await talk(model, client, "nobody again", 1)
    assert [call.messages[-1].content for call in trajectory.calls] == ["somebody/0", "somebody/1"]
    assert trajectory.reward == 2.0
    assert trajectory.metrics["duration"] > 0


async def test_streamed_answers_and_tools_are_captured_alike(model: TrainableModel) -> None:
    async with model.openai_client() as client, model.rollout() as trajectory:
        stream = await client.chat.completions.create(
            model=model.name, messages=[{"role": "user", "content": "one two"}], stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == "one two!"
    assert trajectory.calls[0].reply.content == "one two!"


async def test_no_exception_is_allowed_by_default_and_it_ends_the_others() -> None:
    ended = asyncio.Event()

    async def slow() -> Trajectory:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return Trajectory()

    async with asyncio.timeout(50):
        with pytest.raises(KeyError, match="nothing there"):
            await gather_trajectory_groups([TrajectoryGroup([slow(), fail(0.01)])])
    assert ended.is_set()


@pytest.mark.parametrize(("allowed", "raises"), [(1, True), (2, False), (0.3, True), (0.5, False)])
async def test_exceptions_within_bounds_are_in_their_groups(allowed: float, raises: bool) -> None:
    groups = [TrajectoryGroup([succeed(), fail()]), TrajectoryGroup([fail(), succeed(0.5)])]
    if raises:
        with pytest.raises(KeyError):
            await gather_trajectory_groups(groups, max_exceptions=allowed)
        return
    for group in await gather_trajectory_groups(groups, max_exceptions=allowed):
        assert len(group) == len(group.exceptions) == 1
        assert group.exceptions[0].type == "KeyError"
        assert "in fail" in group.exceptions[0].traceback


async def test_after_each_replaces_adds_and_drops_groups() -> None:
    async def after(group: TrajectoryGroup) -> TrajectoryGroup | list[TrajectoryGroup] | None:
        reward = group.trajectories[0].reward
        return None if reward == 0 else [group, group] if reward == 2 else group

    groups = await gather_trajectory_groups(
        [TrajectoryGroup([succeed(reward)]) for reward in (0, 1, 2)], after_each=after
    )
    assert [group.trajectories[0].reward for group in groups] == [1, 2, 2]


async def test_a_group_may_be_awaited_alone_or_made_by_a_function() -> None:
    assert len(await TrajectoryGroup([succeed(), succeed()])) == 2

    async def made() -> TrajectoryGroup:
        return await TrajectoryGroup([succeed(), fail()], metadata={"scenario_id": "x"})

    (group,) = await gather_trajectory_groups([made()], max_exceptions=1)
    assert (len(group), len(group.exceptions), group.metadata) == (1, 1, {"scenario_id": "x"})


async def test_a_rollout_must_return_a_trajectory() -> None:
    async def wrong() -> Any:
        return 3

    with pytest.raises(TypeError, match="must return a Trajectory"):
        await TrajectoryGroup([wrong()])


async def test_what_was_never_begun_leaves_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(KeyError):
        await gather_trajectory_groups(
            [TrajectoryGroup([fail()]), TrajectoryGroup([succeed()] * 1)], max_exceptions=0
        )
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


async def test_a_copy_of_a_trajectory_keeps_its_calls(model: TrainableModel) -> None:
    """What `after_each` gives back is often a copy."""
    async with model.openai_client() as client:
        (made,) = await gather_trajectories([talk(model, client, "a", 2)])
    assert made.model_copy(update={"reward": 0.5}).calls == made.calls != []


async def test_a_rollout_that_is_tried_again_has_the_calls_of_the_last_try_alone(
    model: TrainableModel,
) -> None:
    tries: list[tuple[Exception, int]] = []
    calls = 0

    async with model.openai_client() as client:

        @podium.retry(delay=0, exceptions=(KeyError,), on_retry=lambda *told: tries.append(told))
        async def unlucky(name: str) -> Trajectory:
            nonlocal calls
            calls += 1
            trajectory = await talk(model, client, f"{name}{calls}", 1)
            if calls < 3:
                raise KeyError(calls)
            return trajectory

        (trajectory,) = await gather_trajectories([unlucky("t")], pbar_desc=None)
    assert [call.messages[-1].content for call in trajectory.calls] == ["t3/0"]
    assert [(repr(error), number) for error, number in tries] == [
        ("KeyError(1)", 1),
        ("KeyError(2)", 2),
    ]


async def test_tries_come_to_an_end_and_only_the_named_exceptions_are_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[type[Exception]] = []

    @podium.retry(max_attempts=2, delay=0, exceptions=(KeyError, OSError))
    async def broken(kind: type[Exception]) -> None:
        calls.append(kind)
        raise kind("no")

    for kind in (KeyError, ValueError):
        with pytest.raises(kind, match="no"):
            await broken(kind)
    assert calls == [KeyError, KeyError, ValueError]
    assert "try 1 of broken failed" in caplog.text


def test_what_cannot_be_tried_again_is_refused() -> None:
    with pytest.raises(ValueError, match="max_attempts is 0"):
        podium.retry(max_attempts=0)
    with pytest.raises(TypeError, match="<lambda> is not a coroutine function"):
        podium.retry()(lambda: None)  # type: ignore[arg-type,return-value]


async def test_a_rollout_whose_calls_were_lost_in_part_is_a_failed_attempt(
    model: TrainableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, takes = model.backend.take, 0

    async def take(key: str) -> list[inference_pb.CapturedCall]:
        nonlocal takes
        takes += 1
        if takes == 2:
            raise DataLossError("1 of the pool's processes is gone", reason="CAPTURE_LOST")
        return await whole(key)

    monkeypatch.setattr(model.backend, "take", take)
    async with model.openai_client() as client:
        (group,) = await gather_trajectory_groups(
            [TrajectoryGroup(talk(model, client, f"n{n}", 2) for n in range(4))],
            max_exceptions=1,
        )
    assert len(group.trajectories) == 3
    (made,) = batch_of([group], model.name)
    (lost,) = (each for each in made.trajectories if each.HasField("failure"))
    assert (lost.failure.type, lost.failure.message) == (
        "DataLossError",
        "1 of the pool's processes is gone",
    )
    assert not lost.histories
