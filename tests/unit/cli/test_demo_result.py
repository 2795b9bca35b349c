"""The demo's numbers."""

from __future__ import annotations

import json

import pytest
from podium.cli.demo.result import measure, tell
from podium.cli.exits import CliError
from podium.cli.html_report import ReportData
from support import job_records as records


def data(**changes: object) -> ReportData:
    given: dict[str, object] = {
        "job": records.job(),
        "steps": records.steps(),
        "evaluations": records.evaluations(),
        "before": records.episodes(0, 30, 12, 6),
        "after": records.episodes(18, 99, 98, 96),
    }
    return ReportData(**{**given, **changes})


def test_result_has_what_the_issue_asks_for() -> None:
    found = json.loads(measure(data()).json())
    assert found["seed"] == 7
    assert found["steps"] == 18
    assert found["n"] == 100
    assert found["train_seconds"] == pytest.approx(18 * 17)
    before = found["before"]
    assert (before["success"], before["low"], before["high"]) == (0.06, 0.028, 0.125)
    assert before["greedy_success"] == 0.55
    assert found["after"]["greedy_success"] == 0.97
    assert found["gain"]["by_format"] + found["gain"]["by_search"] == pytest.approx(0.9)


def test_it_tells_the_environments_reward_and_the_steps_own() -> None:
    """What a judge gave in training is another number: both are told."""
    after = records.episodes(18, 99, 98, 96)
    for episode in after:
        episode.reward = 7.0
    result = measure(data(after=after))
    assert (result.before.reward, result.after.reward) == pytest.approx((0.06, 0.96))
    # Of two kinds it is a proportion: no reward above 1 is claimed.
    assert result.after.reward_low == pytest.approx(0.9003, abs=1e-3)
    assert result.after.reward_high == pytest.approx(0.9848, abs=1e-3)
    assert "reward 0.06 (95 % 0.03 to 0.13) -> 0.96 (95 % 0.90 to 0.98)" in tell(data(), result)
    assert [point.step for point in result.curve] == list(range(1, 19))
    assert result.curve[-1].reward == records.steps()[-1].metrics["reward_mean"]


def test_a_success_that_did_not_come_is_in_the_rewards_interval() -> None:
    before = records.episodes(0, 30, 12, 0)
    for number, episode in enumerate(before):
        episode.environment_reward = 0.001 * number
    result = measure(data(before=before))
    assert result.before.reward == pytest.approx(0.0495)
    # Without the successes it ends at 0.055.
    assert result.before.reward_high == pytest.approx(0.0854, abs=1e-3)


def test_without_an_environments_reward_there_is_none() -> None:
    after = records.episodes(18, 99, 98, 96)
    for episode in after:
        episode.ClearField("environment_reward")
    result = measure(data(after=after))
    assert (result.after.reward, result.after.reward_low) == (None, None)
    assert "reward 0.06" not in tell(data(), result)


def test_text_shows_the_numbers_and_three_episodes_before_and_after() -> None:
    text = tell(data(), measure(data()))
    assert "0.06 sampled (95 % 0.03 to 0.12), 0.55 greedy" in text
    assert "0.96 sampled" in text
    assert "format +" in text
    for number in (1, 2, 3):
        assert f"episode {number}, before training" in text
        assert f"episode {number}, after training" in text
    assert "reward and success by step" in text


def test_only_a_task_that_searches_is_told_of_searching() -> None:
    shown = tell(data(), measure(data()))
    assert "search found the target, given that     40 % ->   99 %" in shown
    played = data(
        before=records.without_search(records.episodes(0, 30, 12, 6)),
        after=records.without_search(records.episodes(18, 99, 98, 96)),
    )
    text = tell(played, measure(played))
    assert "search" not in text.partition("what was learned")[2]
    assert "the rest +" in text
    assert "every action in valid format            30 % ->   99 %" in text


def test_greedy_evaluations_are_told_where_there_are_some() -> None:
    sampled = [item for item in records.evaluations() if item.mode == "sampled"]
    result = measure(data(evaluations=sampled))
    assert (result.after.success, result.after.greedy_success) == (0.96, None)
    told = tell(data(evaluations=sampled), result)
    assert "0.96 sampled (95 % 0.90 to 0.98)" in told
    assert "greedy" not in told


def test_a_job_without_both_evaluations_is_refused() -> None:
    with pytest.raises(CliError, match="no evaluation before and after"):
        measure(data(evaluations=records.evaluations()[:2]))
