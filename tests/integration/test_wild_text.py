"""Nothing that a model, a judge or an agent says ends in INTERNAL: fuzzed through the real code.

`PODIUM_FUZZ_TEXTS` is how many texts go through the functions, and a twentieth of them through
the services: unless it says so 2,500, and with `--full` 30,000. The seed is fixed, so a failure is
found again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from podium.chat.replies import completion_of
from podium.core.contract import validate
from podium.core.errors import InternalError, PodiumError
from podium.core.openai_messages import messages_of, tools_of
from podium.core.tool_calls import parse_tool_calls
from podium.core.tool_formats import FORMATS
from podium.environments import Observation, catalog, user
from podium.environments.serving.convert import observation_to_pb
from podium.environments.types import assistant
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.inference.v1 import inference_service_pb2_grpc as inference_grpc
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.judge.v1 import judge_service_pb2_grpc as judge_grpc
from podium.kit.rpc import connect, rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from podium_inference.adapters.http.capture import CapturedRequest, How, capture
from podium_inference.domain.captures import Captures
from podium_judge.domain import verdict
from podium_judge.domain.prompt import GroupQuestion, build_prompt
from podium_judge.domain.transcript import attempt_of
from podium_judge.domain.transcript import tools_of as judged_tools
from podium_rollout.domain.trajectories import failure_of
from support.fake_judge import Answer, Behaviour, FakeJudge, fake_judge, shown
from support.full import full
from support.judging import judge_service
from support.rollout_service import environment_here, rollout
from support.sampling_params import Params
from support.wild_services import Echo, WildEngine, wild_inference
from support.wild_text import Wild

pytestmark = pytest.mark.timeout(900)

TEXTS = int(os.environ.get("PODIUM_FUZZ_TEXTS") or 100 * hypothesis.settings().max_examples)
SERVED = TEXTS // 20
SEED = 20_000_003
OTHER_FORMATS = ("llama3_json", "mistral", "kimi_k2")


def read_back(message: Any) -> Any:
    """As whoever receives it has it."""
    return type(message).FromString(message.SerializeToString())


def test_every_reply_becomes_a_message_and_what_tools_decode_of_it_can_be_sent() -> None:
    wild = Wild(SEED)
    calls = 0
    for number in range(TEXTS):
        call_format = list(FORMATS)[number % len(FORMATS)]
        # In its own format, or in any: the same seed makes the same replies.
        reply = wild.written(call_format) if number % 2 else wild.reply()
        message = parse_tool_calls(reply, call_format)
        assert read_back(message) == message
        assert validate(message) == []
        assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)
        for call in message.tool_calls:
            calls += 1
            assert call.name
            try:
                arguments = json.loads(call.arguments_json)
            except (ValueError, RecursionError):
                continue
            json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    assert calls > TEXTS / 20


def test_every_request_and_environments_answer_becomes_a_message() -> None:
    wild = Wild(SEED + 1)
    for _ in range(TEXTS // 4):
        body = wild.body()
        call = inference_pb.CapturedCall(messages=messages_of(body), tools=tools_of(body))
        read_back(inference_pb.TakeCaptureResponse(call=call))
        assert validate(call) == []
        failure = failure_of(ValueError(wild.text()))
        read_back(trajectory_pb2.Trajectory(failure=failure))
        seen = Observation([user(wild.text()), assistant(wild.reply())], state={"q": wild.text()})
        read_back(observation_to_pb(seen))


def test_every_trajectory_can_be_shown_to_a_judge() -> None:
    wild = Wild(SEED + 2)
    for number in range(TEXTS // 16):
        group = trajectory_pb2.Group()
        for _ in range(4):
            history = group.trajectories.add().histories.add()
            history.messages.extend(messages_of({"messages": [wild.message(), wild.message()]}))
            history.messages.append(parse_tool_calls(wild.reply(), "hermes"))
            history.tools.extend(tools_of(wild.body()))
        attempts = sorted({attempt_of(each) for each in group.trajectories})
        question = GroupQuestion(
            tuple(attempts), judged_tools(group.trajectories), max_tokens=2_000
        )
        prompt = build_prompt(question, str(number))
        assert len((prompt.system + prompt.user).encode()) < 10_000


def test_every_answer_of_a_judge_is_scores_or_a_complaint() -> None:
    wild = Wild(SEED + 3)
    outcomes: Counter[str] = Counter()
    for _ in range(TEXTS):
        try:
            answer = completion_of(wild.completion(["1", "2"]), 1000)
            scores = verdict.parse(answer.reply.text, ["1", "2"])
        except (ValueError, verdict.VerdictError) as error:
            outcomes[type(error).__name__] += 1
            str(error).encode()
            continue
        outcomes["scores"] += 1
        for score in scores:
            assert 0 <= score.value <= 1
            read_back(trajectory_pb2.Trajectory(explanation=score.explanation, reward=score.value))
        judge_pb.JudgeUsage(
            prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens
        )
    assert min(outcomes["scores"], outcomes["VerdictError"], outcomes["ValueError"]) > TEXTS / 100


async def keep(wild: Wild, key: str, captures: Captures, ids: list[int]) -> None:
    """A call of the OpenAI API, through the real capture."""

    async def told(_: str) -> None:
        pass

    async def outputs() -> AsyncGenerator[Any, None]:
        choice = SimpleNamespace(
            index=0,
            token_ids=ids,
            logprobs=None,
            text=wild.reply(),
            finish_reason="stop",
            weight_versions=None,
        )
        yield SimpleNamespace(request_id="r", prompt_token_ids=[1, 2], outputs=[choice])

    body = json.dumps(wild.body()).encode() if wild.chance(0.95) else b"[" * 100_000
    asked = CapturedRequest(key, body=bytearray(body))
    how = How(Params(), ("job", 1), wild.choice(list(FORMATS)))
    assert [1 async for _ in capture(outputs(), asked, how, captures, told)] == [1]


async def test_every_captured_call_is_handed_over_with_its_tokens_as_they_were() -> None:
    wild = Wild(SEED + 4)
    captures = Captures(10 * SERVED, 10**9, 3600.0)
    async with wild_inference(WildEngine(wild), captures, "hermes") as address:
        channel = connect(address)
        stub = inference_grpc.InferenceServiceStub(channel)
        for number in range(SERVED):
            await keep(wild, f"podium-rollout-{number % 10}", captures, [number, 7])
        found = []
        for number in range(10):
            request = inference_pb.TakeCaptureRequest(
                key=f"podium-rollout-{number}", here_only=True
            )
            with rpc_errors("inference"):
                async for response in stub.TakeCapture(request, timeout=300):
                    found.append(list(response.call.generation.token_ids))
        await channel.close()
    assert sorted(found) == [[number, 7] for number in range(SERVED)]


def mostly_honest(wild: Wild) -> Behaviour:
    def behave(request: dict[str, Any]) -> Answer:
        if wild.chance(0.02):
            return Answer(
                wild.choice((200, 402, 404, 418, 500)), wild.text().encode(errors="replace")
            )
        return Answer(body=wild.completion(list(shown(request))))

    return behave


@pytest.fixture
def wild_judge() -> Iterator[FakeJudge]:
    with fake_judge() as model:
        model.then(mostly_honest(Wild(SEED + 5)))
        yield model


@pytest.mark.parametrize(
    ("call_format", "remote"),
    [
        ("hermes", True),
        ("text", False),
        full("hermes", False),
        full("text", True),
        *(full(name, remote) for name in OTHER_FORMATS for remote in (False, True)),
    ],
)
async def test_no_group_of_wild_attempts_is_internal_from_rollout_to_judge(
    monkeypatch: pytest.MonkeyPatch, wild_judge: FakeJudge, call_format: str, remote: bool
) -> None:
    monkeypatch.setitem(catalog._BUILTIN, "echo", "support.wild_services:Echo")
    engine = WildEngine(Wild(SEED + 6))
    ruler = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)
    weighted = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_WEIGHTED,
        weighted=spec_pb2.WeightedCriteria(task_type="email_search"),
    )
    outcomes: Counter[str] = Counter()
    turns = 0
    async with (
        environment_here(Echo) as served,
        wild_inference(engine, Captures(10, 10, 10.0), call_format) as inference,
        rollout(inference) as stub,
        judge_service(wild_judge) as judge_address,
    ):
        channel = connect(judge_address)
        judge = judge_grpc.JudgeServiceStub(channel)

        async def one(number: int) -> None:
            nonlocal turns
            request = rollout_pb.CollectGroupRequest(
                group_id=f"wild/s1/g{number}",
                job_id="wild",
                step=1,
                environment=spec_pb2.EnvironmentSpec(name="echo", address=served * remote),
                scenario=trajectory_pb2.Scenario(id="one", split="train"),
                attempts=4,
                policy=policy_pb2.PolicyRef(job="wild", version=1),
                episode=spec_pb2.EpisodeSpec(max_turns=4),
                seed=number,
            )
            group = trajectory_pb2.Group(id=request.group_id, job_id="wild", step=1)
            with rpc_errors("rollout"):
                async for response in stub.CollectGroup(request, timeout=300):
                    group.trajectories.append(response.trajectory)
            assert len(group.trajectories) == 4
            for trajectory in group.trajectories:
                outcomes[trajectory.failure.type or "ended"] += 1
                for history in trajectory.histories:
                    for span in history.tokens.spans:
                        turns += 1
                        ids = history.tokens.token_ids[span.start : span.start + span.length]
                        assert list(ids) == engine.sampled[span.request_id]
            asked = judge_pb.ScoreGroupRequest(
                group=group, reward=spec_pb2.RewardSpec(scorers=[ruler, weighted])
            )
            try:
                with rpc_errors("judge"):
                    scored = (await judge.ScoreGroup(asked, timeout=300)).group
                outcomes[scored.skip_reason or "scored"] += 1
            except InternalError:
                raise
            except PodiumError as error:
                outcomes[error.reason] += 1

        groups = max(4, SERVED // 60)
        for first in range(0, groups, 4):
            async with asyncio.TaskGroup() as tasks:
                for number in range(first, min(first + 4, groups)):
                    tasks.create_task(one(number))
        await channel.close()
    assert turns > groups
    assert outcomes["ended"] > groups
    # The environment raises these on purpose; nothing else comes of what was said.
    assert set(outcomes) <= {
        *("ended", "WildError", "scored", "all_failed", "no_reward", "judge_failed"),
        *("zero_variance", "JUDGE_UNAVAILABLE"),
    }
