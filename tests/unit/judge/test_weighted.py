from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.domain.scores import Score, Unscored
from podium_judge.domain.weighted import WeightedScorer


def spec(**fields: Any) -> spec_pb2.WeightedCriteria:
    defaults: dict[str, Any] = {
        "accuracy": 0.4,
        "efficiency": 0.3,
        "completeness": 0.2,
        "satisfaction": 0.1,
        "task_type": "general",
        "optimal_actions": 5,
    }
    return spec_pb2.WeightedCriteria(**(defaults | fields))


def attempt(info: dict[str, Any] | None = None, **fields: Any) -> trajectory_pb2.Trajectory:
    fields.setdefault("stop_reason", trajectory_pb2.STOP_REASON_TERMINATED)
    trajectory = trajectory_pb2.Trajectory(id="t0", group_id="g", scenario_id="s", **fields)
    trajectory.info.update(info or {})
    return trajectory


def only(criterion: str, **fields: Any) -> WeightedScorer:
    weights = dict.fromkeys(("accuracy", "efficiency", "completeness", "satisfaction"), 0.0)
    return WeightedScorer(spec(**(weights | {criterion: 1.0} | fields)), "weighted")


def value(scorer: WeightedScorer, trajectory: trajectory_pb2.Trajectory) -> float:
    score = scorer.score(trajectory)
    assert isinstance(score, Score)
    return score.value


def test_s21_an_email_attempt_scores_the_tutorials_number() -> None:
    trajectory = attempt(
        {
            "result": {
                "selected_email": {
                    "subject": "Quarterly budget",
                    "body": "See the file.",
                    "sender": "anna@example.com",
                }
            },
            "expected": {"keywords": ["budget", "quarterly", "review"], "sender": "anna"},
            "required": ["sender"],
            "provided": ["sender", "date"],
        },
        metrics={"actions": 3},
    )
    score = WeightedScorer(spec(task_type="email_search"), "weighted").score(trajectory)
    assert isinstance(score, Score)
    assert score.value == pytest.approx(0.906667, abs=1e-6)
    assert score.explanation == (
        "accuracy 0.767, efficiency 1.000, completeness 1.000, satisfaction 1.000"
    )


def test_s23_accuracy_needs_the_right_answer() -> None:
    for task_type in ("email_search", "question_answering"):
        verdict = only("accuracy", task_type=task_type).score(attempt({"result": "x"}))
        assert verdict == Unscored("weighted: info.expected is missing")
    verdict = only("accuracy", task_type="email_search").score(attempt({"expected": "anna"}))
    assert isinstance(verdict, Unscored)


def test_s23_general_accuracy_without_expected_looks_at_the_end() -> None:
    cut = attempt(stop_reason=trajectory_pb2.STOP_REASON_MAX_TURNS)
    assert value(only("accuracy"), attempt()) == 0.7
    assert value(only("accuracy"), cut) == 0.3


def test_s27_question_answering_takes_a_text_or_a_list() -> None:
    scorer = only("accuracy", task_type="question_answering")
    assert value(scorer, attempt({"result": "the Paris", "expected": "Paris"})) == 1.0
    assert value(scorer, attempt({"result": "Paris", "expected": ["Rome", "Paris"]})) == 1.0
    assert value(scorer, attempt({"expected": ["Rome"]})) == 0.0


def test_s27_code_generation_reads_the_tests_from_the_metrics() -> None:
    scorer = only("accuracy", task_type="code_generation")
    trajectory = attempt({"result": "x = 1"}, metrics={"tests_passed": 1, "tests_total": 4})
    assert value(scorer, trajectory) == 0.25
    assert value(scorer, attempt({"result": "x = 1", "expected": "x = 1"})) == 1.0


def test_s24_actions_come_from_metrics_then_turns_then_messages() -> None:
    turns = [
        trajectory_pb2.Message(role=trajectory_pb2.ROLE_ASSISTANT, content="x") for _ in range(10)
    ]
    histories = [trajectory_pb2.History(messages=turns)]
    scorer = only("efficiency")
    assert value(scorer, attempt(histories=histories)) == 0.5
    assert value(scorer, attempt(histories=histories, metrics={"turns": 6})) == pytest.approx(0.9)
    metrics = {"turns": 6.0, "actions": 15.0}
    assert value(scorer, attempt(histories=histories, metrics=metrics)) == 0.0


def test_s26_seconds_come_from_metrics_then_the_clock() -> None:
    timed = attempt()
    timed.start_time.FromSeconds(1000)
    timed.end_time.FromSeconds(1090)
    scorer = only("satisfaction")
    assert value(scorer, timed) == pytest.approx(0.8)
    assert value(scorer, attempt()) == 1.0
    timed.metrics["seconds"] = 60
    timed.metrics["errors"] = 1
    assert value(scorer, timed) == pytest.approx(0.8)
    backwards = attempt()
    backwards.start_time.FromSeconds(1000)
    backwards.end_time.FromSeconds(1)
    assert value(scorer, backwards) == 1.0


def test_s21_every_wrong_setting_is_named() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        WeightedScorer(spec(accuracy=0.9, task_type="poetry"), "reward.scorers[1].weighted")
    found = {violation.field: violation.description for violation in caught.value.violations}
    assert set(found) == {"reward.scorers[1].weighted", "reward.scorers[1].weighted.task_type"}
    assert "1.5" in found["reward.scorers[1].weighted"]
    assert "code_generation" in found["reward.scorers[1].weighted.task_type"]


def test_s21_weights_may_be_a_rounding_error_off() -> None:
    WeightedScorer(spec(accuracy=0.1 + 0.2, efficiency=0.3, completeness=0.3), "weighted")
