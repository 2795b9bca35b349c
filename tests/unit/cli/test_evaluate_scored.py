"""`podium eval --judge` with what else a job's reward may have: rubrics, and scorers over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from podium.kit.rpc import retry_unavailable
from podium.sdk import AsyncClient
from podium.sdk.evaluation import asking
from support.cli import Result
from support.fake_judge import Answer, Behaviour, fails, fake_judge, grades, says, scores
from support.http_scoring import answers, rewarding
from support.judged_evaluation import Installation, judged_installation
from support.judging import by_number

PAIR = ("email_search", "-a", "base", "-a", "mail@7", "--judge")
RUBRIC = "scorers: [{kind: rubric, rubric: {criteria: [{name: clear, description: It is.}]}}]"
WORDS = "[{name: clear, description: It is.}]"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Installation]:
    async with judged_installation(tmp_path) as found:
        found.model.then(grades(lambda _, text: by_number(text)))
        yield found


def served(here: Installation, folder: Path, more: str = "") -> str:
    """The name of a file whose reward is the scorer's."""
    text = f"scorers: [{{kind: http, http: {{base_url: '{here.scorer_url}'{more}}}}}]"
    (folder / "served.yaml").write_text(text)
    return "served.yaml"


def length(request: dict[str, Any]) -> Answer:
    """A user's own scorer: how many messages each attempt has."""
    made = [len(each["messages"]) for each in request["trajectories"]]
    return Answer(body=json.dumps({"scores": made, "reasons": ["long"] * len(made)}).encode())


def rewards(result: Result, agent: int = 0) -> list[float | None]:
    return [each["reward"] for each in json.loads(result.out)[agent]["episodes"]]


async def test_a_rubric_makes_the_reward_of_every_agent_and_success_stays_the_environments(
    here: Installation, tmp_path: Path
) -> None:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    result = await here.run(tmp_path, *PAIR, "rubric.yaml", "-o", "json")
    assert result.code == 0, result.err
    base, mail = json.loads(result.out)
    assert rewards(result, 0) == [0.5, 0.5, 0.5, 0.5]
    assert rewards(result, 1) == [0.5, 0.9, 0.5, 0.8]
    # By the environment's own reward: 0.9, 0.51, 1.0 and 0.5.
    assert (base["success"], mail["success"]) == (0.75, 0.75)
    assert mail["compared_with_first"]["reward_difference"] == pytest.approx(0.175)
    assert mail["metrics"]["rubric/clear"] == pytest.approx(0.675)
    assert (mail["judged_against_first"], mail["scored"]["unanswered"]) == (None, {})
    second = mail["episodes"][1]
    assert (second["environment_reward"], second["reward_parts"]) == (0.51, {"rubric": 0.9})
    assert "clear?" in second["explanation"]
    # What it takes to ask again.
    ((opinion,),) = (each["opinions"] for each in mail["scored"]["judgements"]["1"])
    assert (opinion["model"], opinion["address"]) == ("m", here.model.base_url)
    assert opinion["attempts"][0]["score"] == 0.9
    assert opinion["attempts"][0]["prompt_digest"]
    async with AsyncClient(here.fake.addresses) as client:
        stored = await client.evaluations.get(mail["evaluation_id"])
        results = await client.evaluations.results(stored.id)
    assert stored.mean_reward.mean == pytest.approx(0.675)
    assert stored.success.mean == 0.75
    assert stored.reward.scorers[0].rubric.criteria[0].name == "clear"
    assert not stored.HasField("judge")
    assert [each.metrics["rubric/clear"] for each in results] == [0.5, 0.9, 0.5, 0.8]
    table = await here.run(tmp_path, *PAIR, "rubric.yaml", "--no-store")
    assert "rewards are rubric; success is the environment's" in table.out
    shown = await here.run(tmp_path, "show", stored.id)
    assert "rewards are  rubric" in shown.out
    # Of the environment's own rewards none is told, and compare says that they differ.
    own = await here.run(tmp_path, "email_search", "-a", "mail@7", "-o", "json")
    other = json.loads(own.out)[0]["evaluation_id"]
    assert "rewards are" not in (await here.run(tmp_path, "show", other)).out
    compared = await here.run(tmp_path, "compare", other, stored.id)
    assert "they differ in reward: none and" in compared.err


async def test_scorers_of_a_kind_and_ruler_stand_beside_each_other(
    here: Installation, tmp_path: Path
) -> None:
    def both(request: dict[str, Any]) -> Answer:
        alone = "criterion" in json.dumps(request["response_format"])
        honest: Behaviour = grades(lambda _, text: by_number(text)) if alone else scores(by_number)
        return honest(request)

    here.model.then(both)
    (tmp_path / "all.yaml").write_text(
        f"scorers: [{{kind: rubric, rubric: {{criteria: {WORDS}}}}}, {{kind: ruler}}, "
        f"{{kind: rubric, weight: 0.5, rubric: {{criteria: {WORDS}}}}}, "
        "{kind: environment, weight: 0.0}]"
    )
    result = await here.run(tmp_path, *PAIR, "all.yaml", "-o", "json")
    assert result.code == 0, result.err
    _, mail = json.loads(result.out)
    assert rewards(result, 1) == pytest.approx([0.75, 1.35, 0.75, 1.2])
    assert mail["episodes"][1]["reward_parts"] == {
        "rubric": 0.9,
        "rubric_2": 0.9,
        "environment": 0.51,
    }
    assert mail["judged_against_first"]["win_rate"] == 0.75
    assert mail["judged_against_first"]["judgements"]["1"][0]["part"] == "ruler"
    async with AsyncClient(here.fake.addresses) as client:
        stored = await client.evaluations.get(mail["evaluation_id"])
    assert [scorer.weight for scorer in stored.reward.scorers] == [1, 0.5, 0]
    assert [scorer.ruler.both_orders for scorer in stored.judge.scorers] == [True]
    table = await here.run(tmp_path, *PAIR, "all.yaml", "--no-store")
    assert "rewards are rubric + 0.5 × rubric + 0 × environment" in table.out


async def test_a_scorer_of_ones_own_is_told_what_it_is_told_of_a_job(
    here: Installation, tmp_path: Path
) -> None:
    here.scorer.then(length)
    command = ("email_search", "-a", "baseline:scripted", "--limit", "2", "--concurrency", "1")
    command = (*command, "--judge")
    file = served(here, tmp_path)
    result = await here.run(tmp_path, *command, file, "-o", "json", "--no-store")
    assert result.code == 0, result.err
    (scripted,) = json.loads(result.out)
    assert here.scorer.paths == ["/score", "/score"]
    for request, episode in zip(here.scorer.requests, scripted["episodes"], strict=True):
        (attempt,) = request["trajectories"]
        assert request["scenario"]["split"] == "heldout"
        assert {"question", "inbox", "answer"} <= request["scenario"]["data"].keys()
        assert attempt["reward"] == episode["environment_reward"]
        assert attempt["metrics"]["success"] == episode["metrics"]["success"]
        assert attempt["metrics"]["turns"] == episode["turns"]
        assert attempt["stop_reason"] == "terminated"
        assert episode["reward"] == len(attempt["messages"])
        assert episode["explanation"] == "long"
    # Criteria of what the environment measured need nobody.
    (tmp_path / "weighted.yaml").write_text(
        "scorers: [{kind: weighted, weighted: {accuracy: 0, efficiency: 1, completeness: 0,"
        " satisfaction: 0, optimal_actions: 1}}]"
    )
    weighted = await here.run(tmp_path, *command, "weighted.yaml", "-o", "json", "--no-store")
    assert weighted.code == 0, weighted.err
    for reward, episode in zip(rewards(weighted), scripted["episodes"], strict=True):
        assert reward == pytest.approx(1 / episode["turns"], abs=0.2)


async def test_other_peoples_models_are_scored_by_reward_models(
    here: Installation, tmp_path: Path
) -> None:
    with fake_judge() as api:
        api.then(says("select: none 3"))
        here.openai = api.base_url
        command = ("email_search", "-a", "openai:m", "--limit", "2", "-o", "json", "--no-store")

        def last(read: Any) -> Behaviour:
            def behave(request: dict[str, Any]) -> Answer:
                words = [m["content"] for m in request["messages"] if m["role"] == "assistant"]
                return rewarding(read)({"messages": [{"content": words[-1]}]})

            return behave

        here.scorer.then(last(lambda number: [[0.0], [number / 2]]))
        pooled = await here.run(
            tmp_path, *command, "--judge", served(here, tmp_path, ", protocol: pooling")
        )
        assert pooled.code == 0, pooled.err
        assert rewards(pooled) == [1.5, 1.5]
        here.scorer.then(answers({"data": [{"probs": [0.25, 0.75]}]}))
        more = ", protocol: classify, class_index: 1"
        classified = await here.run(tmp_path, *command, "--judge", served(here, tmp_path, more))
        assert rewards(classified) == [0.75, 0.75]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (fails(500), "HTTP 500 each time"),
        (fails(429), "429"),
        (fails(422, '{"error": "not \x1b[31mthis"}'.replace("\x1b", "\\u001b")), "not \\x1b[31m"),
        (answers({"scores": []}), "gave 0 scores for 1 attempts"),
        (answers({"scores": ["0.5"]}), "is not a number"),
        (answers('{"scores": [NaN]}'), "not one JSON object"),
        (answers('{"scores": [1e999]}'), "not finite"),
        (answers("<html>"), "not one JSON object"),
    ],
)
async def test_what_no_scorer_answered_for_is_told_and_asked_again_without_new_episodes(
    here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Behaviour, why: str
) -> None:
    def once(call: Any, timeout_s: float) -> Any:
        return retry_unavailable(call, timeout_s=0)

    monkeypatch.setattr(asking, "retry_unavailable", once)
    here.scorer.then(length, answer)
    arguments = ("--name", "n", "--concurrency", "1", "-o", "json")
    file = served(here, tmp_path)
    broken = await here.run(tmp_path, "email_search", "-a", "mail@7", "--judge", file, *arguments)
    assert broken.code == 3, broken.err
    assert "3 scenarios of mail@7 were not scored, and are in no reward" in broken.err
    assert why in broken.err
    (mail,) = json.loads(broken.out)
    assert rewards(broken) == [2, None, None, None]
    assert (mail["success"], mail["reward"], mail["unscored"]) == (0.75, 2, 3)
    assert len(here.fake.rollout.requests) == 4
    here.scorer.then(length)
    again = await here.run(tmp_path, "email_search", "-a", "mail@7", "--judge", file, *arguments)
    assert again.code == 0, again.err
    assert rewards(again) == [2, 2, 2, 2]
    assert len(here.fake.rollout.requests) == 4


async def test_an_attempt_that_a_scorer_gives_nothing_is_noted_and_one_that_raised_has_no_reward(
    here: Installation, tmp_path: Path
) -> None:
    (tmp_path / "at_times.py").write_text(RAISING)
    here.scorer.then(answers({"scores": [None], "reasons": ["off topic"]}), length)
    result = await here.run(
        tmp_path,
        *("at_times:Task", "-a", "baseline:broken", "--split", "train", "--concurrency", "1"),
        *("--judge", served(here, tmp_path), "-o", "json", "--no-store"),
    )
    assert result.code == 0, result.err
    assert "1 attempts of baseline:broken have no score" in result.err
    assert "off topic" in result.err
    (broken,) = json.loads(result.out)
    assert rewards(result) == [None, 2, None]
    assert (broken["unscored"], broken["failed"], broken["reward"]) == (2, 1, 2)
    assert len(here.scorer.requests) == 2


async def test_a_scorer_that_changed_makes_another_evaluation_of_the_same_episodes(
    here: Installation, tmp_path: Path
) -> None:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    command = ("email_search", "-a", "mail@7", "--name", "n", "-o", "json", "--judge")
    here.model.then(fails(401))
    assert (await here.run(tmp_path, *command, "rubric.yaml")).code == 3
    (tmp_path / "rubric.yaml").write_text(RUBRIC.replace("clear", "brief"))
    here.model.then(grades(lambda _, text: by_number(text)))
    again = await here.run(tmp_path, *command, "rubric.yaml")
    assert again.code == 0, again.err
    assert len(here.fake.rollout.requests) == 4
    async with AsyncClient(here.fake.addresses) as client:
        found = [each async for each in client.evaluations.list(name="n")]
    names = [each.reward.scorers[0].rubric.criteria[0].name for each in found]
    assert names == ["brief", "clear"]
    assert [each.HasField("mean_reward") for each in found] == [True, False]


@pytest.mark.parametrize(
    ("reward", "field", "words"),
    [
        ("scorers: []", "scorers", "at least one"),
        ("{}", "scorers", "at least one"),
        ("[]", "", "allowed is"),
        ("scorers: [", "", "1"),
        ("scorers: [{kind: judge}]", "scorers[0].kind", "judge"),
        ("base_model: m", "base_model", "base_model"),
        ("scorers: [{kind: rubric}]", "scorers[0].rubric.criteria", "at least one"),
        (
            "scorers: [{kind: rubric, rubric: {criteria: [{name: '', description: d}]}}]",
            "scorers[0].rubric.criteria[0].name",
            "required",
        ),
        (
            f"scorers: [{{kind: rubric, rubric: {{criteria: [{WORDS[1:-1]}, {WORDS[1:-1]}]}}}}]",
            "scorers[0].rubric.criteria[1].name",
            "another one has",
        ),
        ("scorers: [{kind: ruler}, {kind: ruler}]", "scorers[1].kind", "allowed is one"),
        ("scorers: [{kind: ruler, ruler: {quorum: -1}}]", "scorers[0].ruler.quorum", "-1"),
        (
            "scorers: [{kind: ruler, ruler: {max_job_tokens: 9}}]",
            "scorers[0].ruler.max_job_tokens",
            "an evaluation has no job",
        ),
        ("scorers: [{kind: http}]", "scorers[0].http.base_url", "http"),
        (
            "scorers: [{kind: http, http: {base_url: 'http://u:p@h/'}}]",
            "scorers[0].http.base_url",
            "without a user",
        ),
        # What the judge service alone knows.
        (
            "scorers: [{kind: environment}, {kind: http, http: {base_url: 'http://h',"
            " api_key_env: PODIUM_JUDGE_KEY_NONE}}]",
            "reward.scorers[1].http.api_key_env",
            "PODIUM_JUDGE_KEY_NONE",
        ),
        ("scorers: [{kind: weighted, weighted: {accuracy: 1}}]", "scorers[0].weighted", "1"),
    ],
)
async def test_a_reward_that_cannot_be_is_refused_by_its_field_before_anything_runs(
    here: Installation, tmp_path: Path, reward: str, field: str, words: str
) -> None:
    (tmp_path / "judge.yaml").write_text(reward)
    result = await here.run(tmp_path, *PAIR, "judge.yaml")
    assert result.code == 2, result.err
    assert field in result.err
    assert words in result.err
    assert not here.fake.rollout.requests


async def test_a_missing_file_one_agent_for_ruler_and_no_judge_service_are_told_first(
    here: Installation, tmp_path: Path
) -> None:
    one = ("email_search", "-a", "base", "--judge")
    for judge, words in (("ruler", "name two or more"), ("missing.yaml", "No such file")):
        result = await here.run(tmp_path, *one, judge)
        assert (result.code, words in result.err) == (2, True), result.err
    here.judge = "127.0.0.1:1"
    away = await here.run(tmp_path, *PAIR, "ruler")
    assert away.code == 3, away.err
    assert not here.fake.rollout.requests


RAISING = """
from podium.environments import Agent, Environment, Observation, Scenario, StepResult, assistant
from podium.environments import user


class Broken(Agent):
    async def act(self, observation):
        if observation.messages[0].content == "2":
            raise ValueError("no")
        return assistant("words")


class Task(Environment):
    name = "task"
    description = "Says something."
    splits = ("train",)
    baselines = {"broken": lambda seed: Broken()}

    def scenarios(self, split):
        return [Scenario(str(n), {"odd": float("nan")}) for n in range(3)]

    async def reset(self, scenario, seed):
        return Observation([user(scenario.id)])

    async def step(self, action):
        return StepResult(Observation(), reward=1.0, terminated=True, info={"odd": {1, 2}})
"""
