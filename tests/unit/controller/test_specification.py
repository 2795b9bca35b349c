"""Defaults, and checks across fields, of a job's specification."""

from __future__ import annotations

import pytest
from podium.core.contract import validate
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import policy_pb2, spec_pb2
from podium_controller.api.specification import complete, violations
from podium_controller.training.evaluator import evaluation_episode


def spec(**changes: object) -> spec_pb2.JobSpec:
    return spec_pb2.JobSpec(
        **{
            "base_model": "m",
            "environment": spec_pb2.EnvironmentSpec(name="double"),
            "training": spec_pb2.TrainingSpec(steps=3),
            **changes,
        }
    )


def fields(job_spec: spec_pb2.JobSpec, job_id: str = "") -> list[str]:
    return [v.field for v in violations(pb.Job(id=job_id, spec=complete(job_spec)))]


def test_a_plain_job_has_every_default_and_no_violation() -> None:
    plain = spec()
    full = complete(plain)
    assert fields(plain) == []
    assert validate(full) == []
    assert full.rollout.group_size == 8
    assert full.rollout.sampling.temperature == 1
    assert full.rollout.episode.max_turns == 8
    assert full.training.lora.rank == 16
    assert full.training.loss.kl_estimator == spec_pb2.KL_ESTIMATOR_K3
    assert full.retention.keep_last == 3
    assert full.recovery_timeout_seconds == 600
    assert not full.HasField("evaluation")
    assert not full.HasField("reward")
    # The caller's message is untouched.
    assert plain == spec()


def test_parts_of_a_scorer_come_with_its_kind_alone() -> None:
    reward = spec_pb2.RewardSpec(
        scorers=[
            spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT),
            spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_WEIGHTED),
            spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER),
        ]
    )
    plain, weighted, ruler = complete(spec(reward=reward)).reward.scorers
    assert plain.weight == 1
    assert not plain.HasField("weighted")
    assert not plain.HasField("ruler")
    assert weighted.weighted.accuracy == 0.4
    assert ruler.HasField("ruler")
    assert fields(spec(reward=reward)) == []


def test_every_violation_is_reported_at_once_with_its_path() -> None:
    bad = spec(
        environment=spec_pb2.EnvironmentSpec(name="double", split=""),
        rollout=spec_pb2.RolloutSpec(
            sampling=policy_pb2.SamplingParams(
                temperature=0, top_p=0.9, top_k=5, json_schema="{}", seed=3
            )
        ),
        reward=spec_pb2.RewardSpec(
            scorers=[
                spec_pb2.Scorer(
                    kind=spec_pb2.SCORER_KIND_WEIGHTED,
                    weight=0,
                    weighted=spec_pb2.WeightedCriteria(accuracy=0.9, task_type="chess"),
                ),
                spec_pb2.Scorer(
                    kind=spec_pb2.SCORER_KIND_ENVIRONMENT, weight=0, ruler=spec_pb2.RulerSpec()
                ),
            ]
        ),
        evaluation=spec_pb2.EvaluationSpec(split="", best_metric=""),
    )
    assert fields(bad, "base") == [
        "job.id",
        "job.spec.environment.split",
        "job.spec.rollout.sampling.temperature",
        "job.spec.rollout.sampling.top_p",
        "job.spec.rollout.sampling.top_k",
        "job.spec.rollout.sampling.json_schema",
        "job.spec.rollout.sampling.seed",
        "job.spec.reward.scorers[0].weighted",
        "job.spec.reward.scorers[0].weighted.task_type",
        "job.spec.reward.scorers[1].ruler",
        "job.spec.reward.scorers",
        "job.spec.evaluation.split",
        "job.spec.evaluation.best_metric",
    ]
    texts = {v.field: v.description for v in violations(pb.Job(spec=complete(bad)))}
    assert "sum to 1.5" in texts["job.spec.reward.scorers[0].weighted"]
    assert "got 0.9; allowed is 1" in texts["job.spec.rollout.sampling.top_p"]


def test_contradictions_about_judges_are_found_before_a_group_is_scored() -> None:
    own = spec_pb2.RulerSpec(quorum=2, fallbacks=[spec_pb2.JudgeModel(base_url="file:///etc")])
    own.fallbacks[0].extra_body.update({"temperature": 1})
    own.fallbacks[0].prompt_price = 1
    panel = spec_pb2.RulerSpec(model="m", quorum=3, judges=[spec_pb2.JudgeModel(model="a")])
    scorers = [
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler) for ruler in (own, panel)
    ]
    first, second = (f"job.spec.reward.scorers[{n}].ruler" for n in (0, 1))
    assert fields(spec(reward=spec_pb2.RewardSpec(scorers=scorers))) == [
        f"{first}.fallbacks[0].base_url",
        f"{first}.fallbacks[0].extra_body.temperature",
        f"{first}.fallbacks[0].completion_price",
        f"{second}.model",
        f"{second}.quorum",
    ]
    good = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)
    assert fields(spec(reward=spec_pb2.RewardSpec(scorers=[good]))) == []


def test_rubrics_and_scorers_over_http_are_checked_before_a_group_is_scored() -> None:
    twice = spec_pb2.Criterion(name="a", description="?")
    rubric = spec_pb2.RubricSpec(
        criteria=[twice, twice], model="m", judges=[spec_pb2.JudgeModel(base_url="file:///etc")]
    )
    http = spec_pb2.HttpScorerSpec(base_url="http://scorer/?x", class_index=1)
    scorers = [
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RUBRIC, rubric=rubric),
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http),
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RUBRIC, http=http),
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP),
    ]
    path = "job.spec.reward.scorers"
    assert fields(spec(reward=spec_pb2.RewardSpec(scorers=scorers))) == [
        f"{path}[0].rubric.criteria[1].name",
        f"{path}[0].rubric.model",
        f"{path}[0].rubric.judges[0].base_url",
        f"{path}[1].http.base_url",
        f"{path}[1].http.class_index",
        f"{path}[2].http",
        f"{path}[2].rubric.criteria",
        f"{path}[3].http.base_url",
    ]
    rubric = spec_pb2.RubricSpec(criteria=[twice])
    http = spec_pb2.HttpScorerSpec(base_url="http://scorer:50090")
    good = [
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RUBRIC, rubric=rubric),
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http),
    ]
    assert fields(spec(reward=spec_pb2.RewardSpec(scorers=good))) == []
    first, second = complete(spec(reward=spec_pb2.RewardSpec(scorers=good))).reward.scorers
    assert first.rubric.criteria[0].weight == 1
    assert second.http.protocol == spec_pb2.HTTP_SCORER_PROTOCOL_SCORE
    assert not second.http.HasField("class_index")


def test_an_environment_is_an_address_or_an_image() -> None:
    def given(**changes: object) -> list[str]:
        return fields(spec(environment=spec_pb2.EnvironmentSpec(name="mine", **changes)))

    assert (
        given(address="host:1") == given(image="mine:1") == given(image="mine:1", replicas=4) == []
    )
    assert given(address="host:1", image="mine:1") == ["job.spec.environment.address"]
    assert given(replicas=2) == ["job.spec.environment.replicas"]


def test_weights_may_sum_to_one_up_to_rounding() -> None:
    criteria = spec_pb2.WeightedCriteria(
        accuracy=0.1, efficiency=0.2, completeness=0.3, satisfaction=0.4
    )
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_WEIGHTED, weighted=criteria)
    assert fields(spec(reward=spec_pb2.RewardSpec(scorers=[scorer]))) == []


def test_turns_earn_only_where_the_environment_has_a_part_in_the_reward() -> None:
    training = spec_pb2.TrainingSpec(steps=1)
    training.loss.turn_advantage = spec_pb2.TURN_ADVANTAGE_RETURN_TO_GO
    environment = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT)
    ruler = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)

    def given(*scorers: spec_pb2.Scorer) -> list[str]:
        return fields(spec(training=training, reward=spec_pb2.RewardSpec(scorers=scorers)))

    assert given() == given(ruler, environment) == []
    assert given(ruler) == ["job.spec.training.loss.turn_advantage"]
    environment.weight = 0
    assert given(ruler, environment) == ["job.spec.training.loss.turn_advantage"]


def test_the_agent_that_trains_is_the_policy() -> None:
    def rollout(**players: str) -> spec_pb2.RolloutSpec:
        return spec_pb2.RolloutSpec(episode=spec_pb2.EpisodeSpec(players=players))

    assert fields(spec(rollout=rollout(opponent="baseline:random"))) == []
    wrong = spec(rollout=rollout(agent="baseline:random"))
    assert fields(wrong) == ["job.spec.rollout.episode.players[agent]"]


def test_a_model_that_plays_has_an_address_and_a_conversation_of_its_own() -> None:
    job = spec(rollout=spec_pb2.RolloutSpec(), evaluation=spec_pb2.EvaluationSpec())
    for players in (job.rollout.episode.model_players, job.evaluation.model_players):
        for name in ("agent", "user"):
            players[name].base_url = "https://api.example.com/v1"
            players[name].model = "large"
    assert fields(job) == ["job.spec.rollout.episode.model_players[agent]"]
    job.evaluation.model_players["user"].base_url = "api.example.com"
    job.evaluation.players["user"] = "base"
    assert fields(job)[1:] == [
        "job.spec.evaluation.model_players[user]",
        "job.spec.evaluation.model_players[user].base_url",
    ]


def test_a_template_is_not_told_what_podium_says_itself() -> None:
    rollout = spec_pb2.RolloutSpec()
    rollout.episode.chat_template_kwargs.update({"enable_thinking": False, "tools": []})
    assert fields(spec(rollout=rollout)) == ["job.spec.rollout.episode.chat_template_kwargs.tools"]


def test_an_evaluation_may_have_other_players() -> None:
    job = complete(
        spec(
            rollout=spec_pb2.RolloutSpec(
                episode=spec_pb2.EpisodeSpec(players={"opponent": "base", "helper": "base"})
            ),
            evaluation=spec_pb2.EvaluationSpec(players={"opponent": "baseline:perfect"}),
        )
    )
    found = evaluation_episode(job)
    assert dict(found.players) == {"opponent": "baseline:perfect", "helper": "base"}
    assert found.max_turns == job.rollout.episode.max_turns
    assert dict(job.rollout.episode.players) == {"opponent": "base", "helper": "base"}


def test_a_job_names_trackers_and_no_keys() -> None:
    tracking = spec_pb2.TrackingSpec(wandb=spec_pb2.WandbSpec(secret="team"))
    full = complete(spec(tracking=tracking))
    assert full.tracking.wandb.project == "podium"
    assert full.tracking.wandb.mode == spec_pb2.WANDB_MODE_ONLINE
    assert full.tracking.wandb.artifact_every_steps == 10
    assert not full.tracking.HasField("mlflow")
    assert not complete(spec()).HasField("tracking")
    tracking.wandb.secret = "0123456789abcdef" * 2 + "01234567"
    assert fields(spec(tracking=tracking)) == ["job.spec.tracking.wandb.secret"]


@pytest.mark.parametrize(("temperature", "allowed"), [(0.01, True), (0.0099, False), (1e-6, False)])
def test_a_temperature_at_which_the_engine_does_not_sample_is_refused(
    temperature: float, allowed: bool
) -> None:
    sampling = policy_pb2.SamplingParams(temperature=temperature)
    found = violations(pb.Job(spec=complete(spec(rollout=spec_pb2.RolloutSpec(sampling=sampling)))))
    told = f"got {temperature:g}; allowed are numbers from 0.01 up"
    assert [v.description.startswith(told) for v in found] == ([] if allowed else [True])
