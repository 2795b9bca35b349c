"""`podium.environment.v1.Session` over real gRPC: numbers, memory, slots and clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from podium.core import errors
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.environments.serving.convert import struct
from podium.environments.serving.servicer import EnvironmentServicer
from podium.environments.serving.sessions import SessionLimits
from podium.kit.rpc import Server, ServerSettings, connect, rpc_errors
from podium.types.v1 import trajectory_pb2
from support.counting_environment import Counting
from support.waiting import eventually


@pytest.fixture(autouse=True)
async def forget() -> None:
    Counting.forget()


class Stream:
    """One stream of a session."""

    def __init__(self, stub: Any) -> None:
        self.call = stub.Session()

    async def send(self, sequence: int = 0, **request: Any) -> None:
        await self.call.write(pb.SessionRequest(sequence=sequence, **request))

    async def read(self) -> pb.SessionResponse:
        with rpc_errors("environment"):
            response = await self.call.read()
        assert isinstance(response, pb.SessionResponse), "the stream has ended"
        return response

    async def ask(self, sequence: int = 0, **request: Any) -> pb.SessionResponse:
        await self.send(sequence, **request)
        return await self.read()


def opening(name: str = "a", **fields: Any) -> pb.OpenRequest:
    return pb.OpenRequest(session_id=name, config=struct({"name": ""}), **fields)


def step(said: str) -> pb.StepRequest:
    return pb.StepRequest(
        action=trajectory_pb2.Message(role=trajectory_pb2.ROLE_ASSISTANT, content=said)
    )


RESET = pb.ResetRequest(scenario=trajectory_pb2.Scenario(id="only"))
SCORE, CLOSE = pb.ScoreRequest(), pb.CloseRequest()


class Served:
    """Opens streams to a server of this process."""

    def __init__(self, stub: Any, servicer: EnvironmentServicer) -> None:
        self._stub = stub
        self._servicer = servicer

    def __call__(self) -> Stream:
        return Stream(self._stub)

    async def waiting(self, opens: int) -> None:
        """Returns once so many opens wait for a slot."""
        await eventually(lambda: self._servicer._sessions._slots._waiting == opens)


@asynccontextmanager
async def served(**limits: float) -> AsyncIterator[Served]:
    server = Server("environment", ServerSettings())
    servicer = EnvironmentServicer(Counting, SessionLimits(**limits))  # type: ignore[arg-type]
    server.add(
        pb_grpc.add_EnvironmentServiceServicer_to_server,
        servicer,
        "podium.environment.v1.EnvironmentService",
    )
    await server.start()
    channel = connect(f"127.0.0.1:{server.port}")
    stub = pb_grpc.EnvironmentServiceStub(channel)
    try:
        yield Served(stub, servicer)
    finally:
        await channel.close()
        await server.stop(0)
        await servicer.close()
        assert Counting.open == 0


async def begun(stream: Stream, name: str = "a", **fields: Any) -> Stream:
    await stream.ask(open=opening(name, **fields))
    await stream.ask(1, reset=RESET)
    return stream


async def test_a_whole_session() -> None:
    async with served() as stream:
        one = stream()
        opened = (await one.ask(open=opening())).open
        assert (opened.resumed, opened.last_sequence) == (False, 0)
        assert (opened.idle_seconds, opened.resume_seconds) == (3600, 60)
        first = await one.ask(1, reset=RESET)
        assert (first.sequence, first.reset.observation.messages[0].content) == (1, "Count.")
        assert not first.HasField("credits")
        assert (await one.ask(2, step=step("x"))).step.reward == 1
        assert (await one.ask(3, step=step("end"))).step.terminated
        score = (await one.ask(4, score=SCORE)).score
        assert (score.reward, dict(score.metrics)) == (20, {"scored": 1})
        assert (await one.ask(5, close=CLOSE)).HasField("close")
    assert Counting.log == ["reset", "x", "end", "score", "close"]


async def test_a_request_sent_again_after_a_broken_stream_is_answered_from_memory() -> None:
    async with served() as stream:
        one = await begun(stream())
        before = await one.ask(2, step=step("x"))
        one.call.cancel()
        two = stream()
        opened = (await two.ask(open=opening(resume=True))).open
        assert (opened.resumed, opened.last_sequence) == (True, 2)
        assert await two.ask(2, step=step("x")) == before
        assert (await two.ask(3, step=step("y"))).step.metrics["steps"] == 2
    assert Counting.log == ["reset", "x", "y", "close"]


async def test_a_step_goes_on_while_its_stream_is_gone() -> None:
    async with served() as stream:
        one = await begun(stream())
        await one.send(2, step=step("wait"))
        await eventually(lambda: Counting.log == ["reset", "wait"])
        one.call.cancel()
        two = stream()
        assert (await two.ask(open=opening(resume=True))).open.last_sequence == 2
        await two.send(2, step=step("wait"))
        Counting.release.set()
        assert (await two.read()).step.metrics["steps"] == 1
    assert Counting.log == ["reset", "wait", "close"]


async def test_a_stream_that_opens_the_session_takes_it_over() -> None:
    async with served() as stream:
        one = await begun(stream())
        two = stream()
        assert (await two.ask(open=opening())).open.resumed
        with pytest.raises(errors.AbortedError) as caught:
            await one.read()
        assert caught.value.reason == "SESSION_TAKEN_OVER"
        assert (await two.ask(2, step=step("x"))).step.reward == 1


@pytest.mark.parametrize(
    ("sequence", "request_", "error", "reason"),
    [
        (2, {"step": step("other")}, errors.InvalidArgumentError, "SEQUENCE_REUSED"),
        (1, {"reset": RESET}, errors.OutOfRangeError, "SEQUENCE_OUT_OF_ORDER"),
        (4, {"step": step("x")}, errors.OutOfRangeError, "SEQUENCE_OUT_OF_ORDER"),
        (3, {}, errors.InvalidArgumentError, "INVALID_ARGUMENT"),
        (3, {"reset": RESET}, errors.FailedPreconditionError, "ALREADY_RESET"),
        (0, {"open": opening()}, errors.FailedPreconditionError, "ALREADY_OPEN"),
    ],
)
async def test_a_request_out_of_turn_is_refused(
    sequence: int, request_: Mapping[str, Any], error: type[errors.PodiumError], reason: str
) -> None:
    async with served() as stream:
        one = await begun(stream())
        await one.ask(2, step=step("x"))
        with pytest.raises(error) as caught:
            await one.ask(sequence, **request_)
        assert caught.value.reason == reason
    assert Counting.log == ["reset", "x", "close"]


async def test_the_first_request_must_open_a_session_that_may_be_opened() -> None:
    async with served() as stream:
        with pytest.raises(errors.FailedPreconditionError, match="reset before open"):
            await stream().ask(1, reset=RESET)
        with pytest.raises(errors.NotFoundError) as missing:
            await stream().ask(open=opening(resume=True))
        assert missing.value.reason == "SESSION_NOT_FOUND"
        with pytest.raises(errors.InvalidArgumentError) as wrong:
            await stream().ask(open=pb.OpenRequest(session_id="b", config=struct({"colour": 1})))
        assert wrong.value.violations[0].field == "environment.config.colour"
        await begun(stream())
        with pytest.raises(errors.AlreadyExistsError) as differs:
            await stream().ask(open=pb.OpenRequest(session_id="a"))
        assert differs.value.reason == "SESSION_DIFFERS"


async def test_a_step_before_reset_and_one_after_score_are_refused() -> None:
    async with served() as stream:
        one = stream()
        await one.ask(open=opening())
        with pytest.raises(errors.FailedPreconditionError, match="step before reset"):
            await one.ask(1, step=step("x"))
        two = await begun(stream(), "b")
        await two.ask(2, score=SCORE)
        with pytest.raises(errors.FailedPreconditionError, match="after the end"):
            await two.ask(3, step=step("x"))
    # An environment that was never reset is closed all the same.
    assert sorted(Counting.log) == ["close", "close", "reset", "score"]


@pytest.mark.parametrize(
    ("said", "error", "reason"),
    [
        ("raise", errors.InternalError, "ENVIRONMENT_RAISED"),
        ("away", errors.UnavailableError, "ENVIRONMENT_UNAVAILABLE"),
    ],
)
async def test_a_request_that_failed_fails_alike_again_and_has_freed_its_slot(
    said: str, error: type[errors.PodiumError], reason: str
) -> None:
    async with served(max_sessions=1) as stream:
        one = await begun(stream())
        told = []
        for again in (one, stream()):
            if again is not one:
                await again.ask(open=opening(resume=True))
            with pytest.raises(error) as caught:
                await again.ask(2, step=step(said))
            told.append((caught.value.reason, caught.value.message, caught.value.metadata))
        assert told[0] == told[1]
        assert told[0][0] == reason
        await begun(stream(), "b", wait_seconds=5)
        last = stream()
        await last.ask(open=opening(resume=True))
        with pytest.raises(errors.FailedPreconditionError, match="step after a request that fai"):
            await last.ask(3, step=step("x"))
        closing = stream()
        await closing.ask(open=opening(resume=True))
        assert (await closing.ask(3, close=CLOSE)).HasField("close")
    assert Counting.log == ["reset", said, "close", "reset", "close"]


@pytest.mark.parametrize("ends", ["score", "close"])
async def test_score_and_close_end_the_step_that_runs_and_nothing_else_does(ends: str) -> None:
    request = {"score": SCORE} if ends == "score" else {"close": CLOSE}
    async with served() as stream:
        one = await begun(stream())
        await one.send(2, step=step("wait"))
        answer = await one.ask(3, **request)
        assert (answer.sequence, answer.WhichOneof("response")) == (3, ends)
        if ends == "score":
            assert answer.score.reward == 0
        two = await begun(stream(), "b")
        await two.send(2, step=step("wait"))
        with pytest.raises(errors.FailedPreconditionError) as caught:
            await two.ask(3, step=step("x"))
        assert caught.value.reason == "REQUEST_RUNNING"


async def test_score_and_close_may_skip_a_step_that_never_came() -> None:
    async with served() as stream:
        one = await begun(stream())
        assert (await one.ask(3, score=SCORE)).sequence == 3
        assert (await one.ask(7, close=CLOSE)).sequence == 7
    assert Counting.log == ["reset", "score", "close"]


async def test_a_session_that_nobody_takes_up_again_is_closed() -> None:
    async with served(resume_seconds=0.2, max_sessions=1) as stream:
        one = await begun(stream())
        await one.send(2, step=step("wait"))
        await eventually(lambda: "wait" in Counting.log)
        one.call.cancel()
        await eventually(lambda: Counting.open == 0)
        with pytest.raises(errors.NotFoundError):
            await stream().ask(open=opening(resume=True))
        assert (await stream().ask(open=opening())).credits == 0


async def test_a_session_that_is_silent_for_too_long_is_closed_unless_a_step_runs() -> None:
    async with served(idle_seconds=1.5) as stream:
        one = await begun(stream(), idle_seconds=100)
        await one.send(2, step=step("wait"))
        await asyncio.sleep(2.0)
        Counting.release.set()
        assert (await one.read()).step.reward == 1
        with pytest.raises(errors.DeadlineExceededError) as caught:
            await one.read()
        assert caught.value.reason == "SESSION_IDLE"
        await eventually(lambda: Counting.open == 0)


async def test_an_open_waits_for_its_turn_and_credits_tell_what_is_free() -> None:
    async with served(max_sessions=2) as stream:
        one, two, three, four = (stream() for _ in range(4))
        assert (await one.ask(open=opening("a"))).credits == 1
        assert (await two.ask(open=opening("b"))).credits == 0
        await three.send(open=opening("c", wait_seconds=60))
        await stream.waiting(1)
        await four.send(open=opening("d", wait_seconds=60))
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            await stream().ask(open=opening("e"))
        assert caught.value.reason == "NO_SESSION"
        await one.ask(1, close=CLOSE)
        assert (await three.read()).HasField("open")
        await two.ask(1, close=CLOSE)
        assert (await four.read()).credits == 0
        assert (await three.ask(1, close=CLOSE)).credits == 1


async def test_an_open_that_gave_up_leaves_no_gap() -> None:
    async with served(max_sessions=1) as stream:
        one, gone, next_ = (stream() for _ in range(3))
        await one.ask(open=opening("a"))
        await gone.send(open=opening("b", wait_seconds=60))
        await stream.waiting(1)
        await next_.send(open=opening("c", wait_seconds=60))
        await stream.waiting(2)
        gone.call.cancel()
        await one.ask(1, close=CLOSE)
        assert (await next_.read()).HasField("open")
