"""A model that nobody trains speaks beside the policy, over its own API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
from podium.chat import guard
from podium.core.errors import InvalidArgumentError
from podium.environments import Scenario
from podium.environments.serving.convert import scenario_to_pb, struct
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.adapters.model_players import OpenAIPlayer, OpenAIPlayers
from podium_rollout.domain.group import GroupRunner
from podium_rollout.settings import Settings
from support.fake_judge import Answer, Behaviour, FakeJudge, completion, fails, fake_judge, says
from support.rollout import PolicyDouble, group_request, sampled_ids, script

ALONE = {"player_attempts": 1}


@asynccontextmanager
async def players(**settings: Any) -> AsyncIterator[OpenAIPlayers]:
    hooks = {"request": [guard((), "player")]}
    async with httpx.AsyncClient(timeout=None, event_hooks=hooks) as client:
        yield OpenAIPlayers(client, Settings(**settings))


def model(server: FakeJudge | None = None, **fields: Any) -> spec_pb2.ModelPlayer:
    url = server.base_url if server else "http://127.0.0.1:9/v1"
    return spec_pb2.ModelPlayer(**{"base_url": url, "model": "sage", **fields})


def game(player: spec_pb2.ModelPlayer, attempts: int = 1) -> rollout_pb.CollectGroupRequest:
    request = group_request(attempts, max_turns=12)
    request.environment.name = "tic_tac_toe"
    request.environment.config.CopyFrom(struct({"self_play": True}))
    board = Scenario("empty", {"board": ".........", "agent": "X"})
    request.scenario.CopyFrom(scenario_to_pb(board, "train"))
    request.episode.model_players["opponent"].CopyFrom(player)
    return request


async def collect(
    request: rollout_pb.CollectGroupRequest, models: OpenAIPlayers
) -> list[pb.Trajectory]:
    # X takes 1, 2, 3 wherever the other one plays.
    policy = PolicyDouble(
        script(request, {n: ["1", "-", "2", "-", "3"] for n in range(request.attempts)})
    )
    runner = GroupRunner(Environments(), {"default": policy}, 1, models)
    return sorted([t async for t in runner.collect(request)], key=lambda t: t.id)


@contextmanager
def api(*behaviours: Behaviour) -> Iterator[FakeJudge]:
    """The API of the player's model, which is any model's."""
    with fake_judge() as server:
        server.then(*behaviours)
        yield server


def turns(*replies: str) -> list[Behaviour]:
    return [says(reply) for reply in replies]


async def test_a_model_plays_the_other_side_and_none_of_it_trains() -> None:
    with api(*turns("4", "5")) as server:
        player = model(server, temperature=0.5, max_completion_tokens=64)
        player.extra_body.update({"reasoning_effort": "low", "top_k": 7})
        async with players() as models:
            (main,) = await collect(game(player), models)
        first, second = server.requests
    assert main.side == ""
    assert main.environment_reward == 1.0
    tokens = main.histories[0].tokens
    sampled = [list(tokens.token_ids)[s.start : s.start + s.length] for s in tokens.spans]
    assert sampled == [sampled_ids(reply) for reply in ("1", "2", "3")]
    assert main.metrics["player_prompt_tokens"] == 200
    assert main.metrics["player_completion_tokens"] == 20
    assert {name: first[name] for name in ("model", "temperature", "max_completion_tokens")} == {
        "model": "sage",
        "temperature": 0.5,
        "max_completion_tokens": 64,
    }
    assert (first["reasoning_effort"], json.dumps(first["top_k"])) == ("low", "7")
    # Its own conversation alone: what it is told, and what it said.
    assert "You are O" in first["messages"][-1]["content"]
    assert second["messages"][: len(first["messages"]) + 1] == [
        *first["messages"],
        {"role": "assistant", "content": "4"},
    ]
    assert 0 <= first["seed"] < 2**31
    assert first["seed"] != second["seed"]


async def test_a_retry_of_the_group_asks_with_the_same_seeds() -> None:
    with api(*turns("4", "5") * 2) as server:
        request = game(model(server))
        async with players() as models:
            await collect(request, models)
            await collect(request, models)
    seeds = [each["seed"] for each in server.requests]
    assert seeds[:2] == seeds[2:]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (fails(503, retry_after="0"), "cannot be reached: HTTP 503"),
        (fails(401), "refused with HTTP 401: check its key"),
        (fails(422, "no such\0field"), "refused with HTTP 422: no such\ufffdfield"),
        (lambda _: Answer(body=b"<html>"), "answered with what is no chat completion"),
        (lambda _: Answer(body=b"[" * 100_000), "answered with what is no chat completion"),
        (lambda _: Answer(body=b'{"choices": [{"message": "hi"}]}'), "no chat completion"),
        (says("x" * 5_000_000), "cannot be reached: DecodingError"),
    ],
)
async def test_one_that_gives_no_answer_fails_the_attempts_that_ask_it(
    behaviour: Behaviour, words: str
) -> None:
    with api(behaviour) as server:
        async with players(tell_failures=True, **ALONE) as models:
            found = await collect(game(model(server), attempts=2), models)
    assert [t.stop_reason for t in found] == [pb.STOP_REASON_FAILED] * 2
    for failure in (t.failure for t in found):
        assert failure.type == "PlayerFailed"
        assert words in failure.message
        assert not failure.traceback


async def test_the_others_of_the_group_stand() -> None:
    def plays(request: dict[str, Any]) -> Answer:
        # One is the example in the prompt.
        said = sum(each["role"] == "assistant" for each in request["messages"]) - 1
        return completion("45"[said])

    with api(fails(500), plays) as server:
        async with players(**ALONE) as models:
            found = await collect(game(model(server), attempts=2), models)
    ended = sorted(pb.StopReason.Name(t.stop_reason) for t in found)
    assert ended == ["STOP_REASON_FAILED", "STOP_REASON_TERMINATED"]


async def test_of_an_address_that_nobody_trusts_a_job_learns_nothing() -> None:
    with api(fails(401, "the ledger of the bank")) as server:
        async with players(**ALONE) as models:
            (found,) = await collect(game(model(server)), models)
    assert "check its address, its key and the model's name" in found.failure.message
    assert "401" not in found.failure.message
    assert "ledger" not in found.failure.message


async def test_a_metadata_address_is_not_asked() -> None:
    async with players(tell_failures=True, **ALONE) as models:
        player = model(base_url="http://169.254.169.254/v1")
        (found,) = await collect(game(player), models)
    assert "link-local or metadata address" in found.failure.message


async def test_a_key_goes_to_a_trusted_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_ROLLOUT_KEY_SAGE", "secret")
    monkeypatch.setenv("HOME_KEY", "secret")
    with api(*turns("4", "5")) as server:
        named = model(server, api_key_env="PODIUM_ROLLOUT_KEY_SAGE")
        async with players() as models:
            with pytest.raises(InvalidArgumentError) as untrusted:
                await collect(game(named), models)
        assert not server.requests
        async with players(trusted_base_urls=(server.base_url + "/",)) as models:
            with pytest.raises(InvalidArgumentError) as absent:
                await collect(game(model(server, api_key_env="PODIUM_ROLLOUT_KEY_NOBODY")), models)
            with pytest.raises(InvalidArgumentError) as foreign:
                await collect(game(model(server, api_key_env="HOME_KEY")), models)
            await collect(game(named), models)
        assert server.authorizations == ["Bearer secret"] * 2
    field = "episode.model_players[opponent].api_key_env"
    for caught, words in (
        (untrusted, "PODIUM_ROLLOUT_TRUSTED_BASE_URLS"),
        (absent, "has no such environment variable"),
        (foreign, "begin with PODIUM_ROLLOUT_KEY"),
    ):
        (violation,) = caught.value.violations
        assert violation.field == field
        assert words in violation.description


async def test_a_conversation_has_one_player_and_a_model_an_address() -> None:
    request = game(model(base_url="sage.example/v1"))
    request.episode.players["opponent"] = "baseline:random"
    request.episode.model_players["opponent"].extra_body.update({"seed": 1})
    async with players() as models:
        with pytest.raises(InvalidArgumentError) as caught:
            await collect(request, models)
    assert [violation.field for violation in caught.value.violations] == [
        "episode.model_players[opponent]",
        "episode.model_players[opponent].base_url",
        "episode.model_players[opponent].extra_body.seed",
    ]


def _call(call_id: str | None, name: str = "look") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


async def _asked(server: FakeJudge, messages: list[pb.Message]) -> pb.Message:
    async with players(tell_failures=True, **ALONE) as models:
        player: OpenAIPlayer = models.player(model(server), "player")
        tool = pb.Tool(name="look", description="Looks.")
        tool.parameters.update({"type": "object"})
        return (await player.answer(messages, [tool], 1)).message


def _message(**fields: Any) -> Behaviour:
    return lambda _: Answer(body=json.dumps({"choices": [{"message": fields}]}).encode())


async def test_it_is_offered_tools_and_not_its_own_thoughts() -> None:
    said = pb.Message(role=pb.ROLE_ASSISTANT, content="hm", reasoning="let me see")
    with api(_message(content=None, tool_calls=[_call("a")], reasoning="so")) as server:
        message = await _asked(server, [said])
    (request,) = server.requests
    assert request["messages"] == [{"role": "assistant", "content": "hm"}]
    assert request["tools"][0]["function"]["name"] == "look"
    assert message.role == pb.ROLE_ASSISTANT
    assert [call.name for call in message.tool_calls] == ["look"]
    assert message.reasoning == "so"


async def test_an_answer_has_tokens_where_its_api_counts_them() -> None:
    with api(lambda _: completion("4")) as server:
        async with players() as models:
            hello = pb.Message(role=pb.ROLE_USER, content="hello")
            answer = await models.player(model(server), "player").answer([hello], [], 1)
    assert (answer.prompt_tokens, answer.completion_tokens) == (100, 10)
