from __future__ import annotations

import math
from typing import Any

import httpx
import pytest
from podium.core.errors import InvalidArgumentError, UnavailableError
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.adapters.judge_model import OpenAIJudge
from podium_judge.domain.judge import ModelJudge
from podium_judge.domain.judge_config import CallLimits, Endpoint, JudgeConfig
from podium_judge.domain.panel import Panel, Seat
from podium_judge.domain.ruler import RulerScorer
from podium_judge.domain.scores import Usage
from podium_judge.domain.scoring import score_group
from support.fake_judge import FakeJudge, fails, says, scores

FAILED = trajectory_pb2.STOP_REASON_FAILED
DONE = trajectory_pb2.STOP_REASON_TERMINATED
ENVIRONMENT = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT, weight=1)
RULER = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, weight=1)
WEIGHTED = spec_pb2.Scorer(
    kind=spec_pb2.SCORER_KIND_WEIGHTED,
    weight=1,
    weighted=spec_pb2.WeightedCriteria(
        accuracy=0.4,
        efficiency=0.3,
        completeness=0.2,
        satisfaction=0.1,
        task_type="general",
        optimal_actions=5,
    ),
)


def weighing(scorer: spec_pb2.Scorer, weight: float) -> spec_pb2.Scorer:
    copy = spec_pb2.Scorer()
    copy.CopyFrom(scorer)
    copy.weight = weight
    return copy


def group(*rewards: float | None, **more: Any) -> trajectory_pb2.Group:
    made = trajectory_pb2.Group(id="job/s1/g0", job_id="job", step=1, **more)
    for number, reward in enumerate(rewards):
        trajectory = made.trajectories.add(
            id=f"job/s1/g0/t{number}", attempt=number, stop_reason=DONE, environment_reward=reward
        )
        trajectory.histories.add().messages.add(
            role=trajectory_pb2.ROLE_ASSISTANT, content=f"answer {number}"
        )
    return made


class Bench:
    def __init__(self, judge: FakeJudge, client: httpx.AsyncClient) -> None:
        self.judge = judge
        self.client = client
        self.usage = Usage()

    def ruler(self, spec: spec_pb2.RulerSpec, field: str) -> RulerScorer:
        limits = CallLimits(timeout_seconds=5, attempts=2, backoff_seconds=0.001)
        config = JudgeConfig(Endpoint(self.judge.base_url, "m"))
        model = OpenAIJudge(self.client, config, limits)
        return RulerScorer(Panel([Seat(ModelJudge(model))]), spec.rubric)

    async def score(
        self, attempts: trajectory_pb2.Group, *scorers: spec_pb2.Scorer
    ) -> trajectory_pb2.Group:
        return await score_group(
            attempts, spec_pb2.RewardSpec(scorers=scorers), self.ruler, self.usage
        )


@pytest.fixture
def bench(judge: FakeJudge, client: httpx.AsyncClient) -> Bench:
    judge.then(scores(lambda text: 0.5 if "answer 0" in text else 0.25))
    return Bench(judge, client)


def rewards(scored: trajectory_pb2.Group) -> list[float | None]:
    return [t.reward if t.HasField("reward") else None for t in scored.trajectories]


async def test_without_scorers_the_environments_reward_passes_through(bench: Bench) -> None:
    scored = await bench.score(group(1.0, -0.5, 0.0))
    assert rewards(scored) == [1.0, -0.5, 0.0]
    assert dict(scored.trajectories[1].reward_parts) == {"environment": -0.5}
    assert scored.skip_reason == ""
    assert bench.judge.requests == []


async def test_scorers_add_up_by_weight(bench: Bench) -> None:
    scored = await bench.score(
        group(1.0, 0.0), weighing(ENVIRONMENT, 2), weighing(RULER, 0.5), weighing(WEIGHTED, 0.1)
    )
    weighted = 0.4 * 0.7 + 0.3 + 0.2 + 0.1
    assert rewards(scored) == pytest.approx([2 + 0.25 + 0.1 * weighted, 0 + 0.125 + 0.1 * weighted])
    assert [each.environment_weight for each in scored.trajectories] == [2, 2]
    parts = scored.trajectories[0].reward_parts
    assert dict(parts) == pytest.approx({"environment": 1.0, "ruler": 0.5, "weighted": weighted})
    words = scored.trajectories[0].explanation.splitlines()
    assert words[0].startswith("ruler: saw ")
    assert words[1].startswith("weighted: accuracy 0.700")


async def test_what_arts_users_know_is_in_the_metrics(bench: Bench) -> None:
    made = group(0.75, None)
    made.trajectories[0].metrics["success"] = 1
    scored = await bench.score(made, weighing(RULER, 2))
    first, second = scored.trajectories
    assert dict(first.metrics) == {"success": 1, "ruler_score": 0.5, "independent_reward": 0.75}
    assert dict(second.metrics) == {"ruler_score": 0.25}
    assert first.reward == 1.0
    assert first.explanation.startswith("saw ")
    # Judged again by another scorer, nothing of the old verdict is left.
    again = await bench.score(scored, ENVIRONMENT)
    assert dict(again.trajectories[0].metrics) == {"success": 1}
    assert not again.judgements
    assert again.trajectories[0].environment_weight == 1


async def test_without_ruler_the_metrics_are_the_environments(bench: Bench) -> None:
    made = group(1.0)
    made.trajectories[0].metrics["ruler_score"] = 7
    assert dict((await bench.score(made)).trajectories[0].metrics) == {"ruler_score": 7}


async def test_two_rulers_have_two_parts(bench: Bench) -> None:
    scored = await bench.score(group(None, None), RULER, RULER)
    assert dict(scored.trajectories[0].reward_parts) == {"ruler": 0.5, "ruler_2": 0.5}
    assert dict(scored.trajectories[0].metrics) == {"ruler_score": 0.5, "ruler_2_score": 0.5}
    assert [judgement.part for judgement in scored.judgements] == ["ruler", "ruler_2"]
    assert scored.trajectories[0].environment_weight == 0
    assert scored.trajectories[0].HasField("environment_weight")
    assert bench.usage.calls == 2


async def test_a_group_of_failures_is_skipped_whole(bench: Bench) -> None:
    made = group(1.0, 1.0)
    for trajectory in made.trajectories:
        trajectory.stop_reason = FAILED
    scored = await bench.score(made, RULER)
    assert scored.skip_reason == "all_failed"
    assert rewards(scored) == [None, None]
    assert bench.judge.requests == []


async def test_a_failed_attempt_is_not_judged(bench: Bench) -> None:
    made = group(1.0, 1.0, 1.0)
    made.trajectories[1].stop_reason = FAILED
    scored = await bench.score(made, ENVIRONMENT, RULER)
    assert rewards(scored) == [1.5, None, 1.25]
    assert scored.trajectories[1].explanation == "not scored: the attempt failed"
    assert "answer 1" not in bench.judge.requests[0]["messages"][1]["content"]


async def test_an_attempt_without_environment_reward_is_unscored(bench: Bench) -> None:
    made = group(0.5, None, math.nan, math.inf)
    scored = await bench.score(made)
    assert rewards(scored) == [0.5, None, None, None]
    assert "gave no reward" in scored.trajectories[1].explanation
    assert "not finite" in scored.trajectories[2].explanation
    assert not scored.trajectories[2].reward_parts
    scored = await bench.score(group(None, None))
    assert scored.skip_reason == "no_reward"
    assert rewards(scored) == [None, None]


async def test_a_reward_that_overflows_is_none(bench: Bench) -> None:
    scored = await bench.score(group(1e308, 1.0), weighing(ENVIRONMENT, 1000))
    assert rewards(scored) == [None, 1000.0]


async def test_a_reward_that_overflows_leaves_no_part_of_itself(bench: Bench) -> None:
    scored = await bench.score(group(1e308, 1.0), weighing(ENVIRONMENT, 1000), RULER)
    first = scored.trajectories[0]
    assert not first.HasField("reward")
    assert not first.reward_parts
    assert not first.metrics


async def test_equal_rewards_are_the_trainers_business(bench: Bench) -> None:
    scored = await bench.score(group(1.0, 1.0))
    assert rewards(scored) == [1.0, 1.0]
    assert scored.skip_reason == ""


async def test_useless_judge_skips_the_whole_group(bench: Bench) -> None:
    bench.judge.then(says("I cannot decide."))
    scored = await bench.score(group(1.0, 0.0), ENVIRONMENT, RULER)
    assert scored.skip_reason == "judge_failed"
    assert rewards(scored) == [None, None]
    assert not scored.trajectories[0].reward_parts
    assert "not one JSON object" in scored.trajectories[0].explanation


async def test_identical_attempts_are_zero_variance(bench: Bench) -> None:
    made = group(None, None)
    made.trajectories[1].histories[0].messages[0].content = "answer 0"
    scored = await bench.score(made, RULER)
    assert scored.skip_reason == "zero_variance"
    assert rewards(scored) == [None, None]


async def test_identical_words_with_other_rewards_are_told_apart_by_those(bench: Bench) -> None:
    made = group(1.0, 0.0)
    made.trajectories[1].histories[0].messages[0].content = "answer 0"
    scored = await bench.score(made, ENVIRONMENT, RULER)
    assert scored.skip_reason == ""
    assert rewards(scored) == [1.5, 0.5]


async def test_an_unreachable_judge_fails_the_call(bench: Bench) -> None:
    bench.judge.then(fails(503))
    with pytest.raises(UnavailableError):
        await bench.score(group(1.0, 0.0), RULER)


async def test_the_callers_group_is_left_alone_and_old_verdicts_go(bench: Bench) -> None:
    made = group(1.0, None, skip_reason="zero_variance")
    made.trajectories[1].reward = 9.0
    made.trajectories[1].reward_parts["ruler"] = 9.0
    made.trajectories[1].explanation = "old"
    before = made.SerializeToString(deterministic=True)
    scored = await bench.score(made)
    assert made.SerializeToString(deterministic=True) == before
    assert rewards(scored) == [1.0, None]
    assert not scored.trajectories[1].reward_parts
    assert "old" not in scored.trajectories[1].explanation
    assert scored.skip_reason == ""


async def test_everything_else_in_the_group_is_kept(bench: Bench) -> None:
    made = group(1.0, 0.0)
    made.trajectories[0].histories[0].tokens.token_ids.extend([1, 2, 3])
    made.trajectories[0].metrics["success"] = 1
    scored = await bench.score(made)
    assert list(scored.trajectories[0].histories[0].tokens.token_ids) == [1, 2, 3]
    assert scored.trajectories[0].metrics["success"] == 1
    assert (scored.id, scored.job_id, scored.step) == ("job/s1/g0", "job", 1)


async def test_every_wrong_scorer_is_named(bench: Bench) -> None:
    bad = weighing(WEIGHTED, 1)
    bad.weighted.accuracy = 0.9
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.score(group(1.0), bad, spec_pb2.Scorer(weight=1))
    assert [violation.field for violation in caught.value.violations] == [
        "reward.scorers[0].weighted",
        "reward.scorers[1].kind",
    ]


async def test_a_group_without_attempts_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.score(group())
    assert caught.value.violations[0].field == "group.trajectories"


async def test_each_side_of_an_episode_is_judged_with_its_own(bench: Bench) -> None:
    attempts = group(1.0, 0.0, 0.5, 0.5)
    for number in (1, 3):
        attempts.trajectories[number].side = "opponent"
    scored = await bench.score(attempts, RULER, ENVIRONMENT)
    assert [t.id for t in scored.trajectories] == [t.id for t in attempts.trajectories]
    assert [t.reward for t in scored.trajectories] == [1.5, 0.25, 0.75, 0.75]
    prompts = [str(asked) for asked in bench.judge.requests]
    shown = [[f"answer {n}" in prompt for n in range(4)] for prompt in prompts]
    assert shown == [[True, False, True, False], [False, True, False, True]]
    assert [judgement.part for judgement in scored.judgements] == ["ruler", "ruler"]
    assert not scored.skip_reason


async def test_a_side_that_cannot_be_scored_leaves_the_other_its_rewards(bench: Bench) -> None:
    attempts = group(1.0, None, 0.5, None)
    for number in (1, 3):
        attempts.trajectories[number].side = "opponent"
    scored = await bench.score(attempts, ENVIRONMENT)
    assert [t.HasField("reward") for t in scored.trajectories] == [True, False, True, False]
    assert not scored.skip_reason
    for trajectory in attempts.trajectories:
        trajectory.ClearField("environment_reward")
    assert (await bench.score(attempts, ENVIRONMENT)).skip_reason == "no_reward"
