"""The coach names what is wrong with a run that cannot learn, and is silent on one that can."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence

import pytest
from podium.core import findings as reasons
from podium.core.findings import finding_of, open_findings
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_controller.domain.coach import WINDOW_STEPS, CoachEvent, news
from support import coached, job_records
from support.coached import attempt, failed, judged, logistic, run, spec, steady, trial

SEEDS = range(3)
RULER = spec()
RULER.reward.scorers.add(kind=spec_pb2.SCORER_KIND_RULER)
AHEAD = spec()
AHEAD.rollout.max_staleness = 8
WITH_KL = spec(kl_coefficient=0.01)


def told(steps: Sequence[jobs.Step], of: spec_pb2.JobSpec) -> list[CoachEvent]:
    """What is told of a run, step by step."""
    said: list[CoachEvent] = []
    for last in range(1, len(steps) + 1):
        known = open_findings((each.kind, each.message) for each in said)
        said += news(known, steps[max(0, last - WINDOW_STEPS) : last], of)
    return said


def too_hard(seed: int) -> list[jobs.Step]:
    return run(lambda draw, step: attempt(0.0, success=0.0), seed=seed)


def no_exploration(seed: int) -> list[jobs.Step]:
    def entropy(draw: random.Random, step: int) -> dict[str, float]:
        return {**steady(draw, step), "entropy": max(0.7 * 0.6**step, 0.004)}

    return run(lambda draw, step: trial(draw, 0.35), entropy, seed=seed, steps=24)


def cut_answers(seed: int) -> list[jobs.Step]:
    return run(lambda draw, step: attempt(0.0, success=0.0, cut=draw.random() < 0.95), seed=seed)


def full_context(seed: int) -> list[jobs.Step]:
    context = pb.STOP_REASON_CONTEXT_LENGTH
    return run(lambda draw, step: attempt(draw.choice((0.0, 0.1)), stop=context), seed=seed)


def no_valid_action(seed: int) -> list[jobs.Step]:
    turns = pb.STOP_REASON_MAX_TURNS
    return run(
        lambda draw, step: attempt(-0.1 * draw.randint(6, 8), success=0.0, stop=turns), seed=seed
    )


def broken_environment(seed: int) -> list[jobs.Step]:
    return run(lambda draw, step: failed() if draw.random() < 0.7 else trial(draw, 0.3), seed=seed)


def too_large_steps(seed: int) -> list[jobs.Step]:
    def diverging(draw: random.Random, step: int) -> dict[str, float]:
        numbers = steady(draw, step)
        numbers["grad_norm"] *= min(60.0, 1.5**step)
        numbers["entropy"] = min(6.0, 0.6 + 0.05 * 1.5**step)
        return {**numbers, "kl_reference": min(5.0, 0.01 * 1.7**step)}

    return run(
        lambda draw, step: trial(draw, 0.5 if step < 8 else max(0.02, 0.5 - 0.1 * (step - 7))),
        diverging,
        seed=seed,
        steps=20,
    )


def ruined(draw: random.Random, step: int) -> pb.Trajectory:
    """As a real job at a learning rate of 0.02: all say one and the same from step 2 on."""
    if step == 1:
        return trial(draw, 0.3)
    return attempt(0.0, success=0.0, cut=step > 2)


def ruined_at_once(seed: int) -> list[jobs.Step]:
    """With a KL, on which groups without variance go on to train, and no gradient that grows."""
    kls, entropies = (0.0, 6.92, 4.01, 5.11, 14.4), (2.45, 1.76, 3.0, 0.06, 1.38)

    def numbers(draw: random.Random, step: int) -> dict[str, float]:
        kl, entropy = (kls[step - 1], entropies[step - 1]) if step <= 5 else (12.8, 0.001)
        told = {"kl_reference": kl, "entropy": entropy, "grad_norm": 1 / step**3}
        groups = 0 if step == 1 else coached.GROUPS
        return {**steady(draw, step), **told, "zero_variance_groups": groups}

    made = run(ruined, numbers, seed=seed)
    for step in made[1:]:
        step.metrics["train/tokens_trained"] = 288.0
        for name, value in numbers(random.Random(seed), step.number).items():
            step.metrics[f"train/{name}"] = value
        del step.metrics["groups_skipped/zero_variance"]
    return made


def ruined_without_kl(seed: int) -> list[jobs.Step]:
    """The same, of which nothing trains any more: no number but the attempts' own tells of it."""
    return run(ruined, seed=seed)


def old_tokens(seed: int) -> list[jobs.Step]:
    def apart(draw: random.Random, step: int) -> dict[str, float]:
        far = {"mismatch_kl": draw.uniform(0.2, 0.5), "clip_fraction": draw.uniform(0.3, 0.5)}
        return {**steady(draw, step), **far, "effective_sample_fraction": draw.uniform(0.1, 0.3)}

    return run(lambda draw, step: trial(draw, 0.3), apart, seed=seed, age=8)


def waiting_groups(seed: int) -> list[jobs.Step]:
    return run(lambda draw, step: trial(draw, 0.3), seed=seed, age=1, stale=5)


def one_score(seed: int) -> list[jobs.Step]:
    return run(lambda draw, step: attempt(0.0), seed=seed, judge=judged(lambda draw, place: 0.5))


def by_place(seed: int) -> list[jobs.Step]:
    return run(
        lambda draw, step: attempt(0.0),
        seed=seed,
        judge=judged(lambda draw, place: 0.9 - 0.1 * place + draw.uniform(-0.15, 0.15)),
    )


def silent_judge(seed: int) -> list[jobs.Step]:
    return run(lambda draw, step: trial(draw, 0.4), seed=seed, judge=coached.refusing)


def after_its_peak(seed: int) -> list[jobs.Step]:
    def chance(step: int) -> float:
        return 0.2 + 0.06 * step if step < 10 else max(0.1, 0.74 - 0.08 * (step - 10))

    return run(lambda draw, step: trial(draw, chance(step)), seed=seed, steps=24)


def other_weights(seed: int) -> list[jobs.Step]:
    def apart(draw: random.Random, step: int) -> dict[str, float]:
        return {**steady(draw, step), "mismatch_kl": draw.uniform(0.15, 0.3)}

    return run(lambda draw, step: trial(draw, 0.3), apart, seed=seed)


SICK = {
    too_hard: (reasons.NO_VARIANCE, spec(), "rollout.sampling.temperature"),
    no_exploration: (reasons.ENTROPY_COLLAPSE, spec(), "training.learning_rate"),
    cut_answers: (reasons.ANSWERS_CUT, spec(), "rollout.sampling.max_tokens (128)"),
    full_context: (reasons.ANSWERS_CUT, spec(), "maxModelLen"),
    no_valid_action: (reasons.EPISODES_UNFINISHED, spec(), "rollout.episode.max_turns (8)"),
    broken_environment: (reasons.EPISODES_FAILING, spec(), "podium trajectory list"),
    too_large_steps: (reasons.LEARNING_RATE_TOO_HIGH, WITH_KL, "training.learning_rate (1e-05)"),
    ruined_at_once: (reasons.LEARNING_RATE_TOO_HIGH, WITH_KL, "training.learning_rate (1e-05)"),
    ruined_without_kl: (reasons.NO_VARIANCE, spec(), "before step 1 (fork.model, fork.version)"),
    old_tokens: (reasons.STALENESS_TOO_LARGE, AHEAD, "lower rollout.max_staleness (8)"),
    waiting_groups: (reasons.GROUPS_STALE, AHEAD, "raise rollout.max_staleness"),
    one_score: (reasons.JUDGE_ONE_SCORE, RULER, "rubric"),
    by_place: (reasons.JUDGE_POSITION_BIAS, RULER, "both_orders"),
    silent_judge: (reasons.GROUPS_SKIPPED, RULER, "fallbacks"),
    after_its_peak: (reasons.REWARD_FALLING, spec(), "fork.version"),
    other_weights: (reasons.SAMPLER_MISMATCH, spec(), "training.dtype"),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sick", SICK, ids=lambda sick: sick.__name__)
def test_a_sick_run_is_named_once_with_the_setting(
    sick: Callable[[int], list[jobs.Step]], seed: int
) -> None:
    reason, of, setting = SICK[sick]
    said = told(sick(seed), of)
    assert [finding_of(each.message) for each in said] == [reason]
    (event,) = said
    assert event.kind == jobs.EVENT_TYPE_WARNING
    assert setting in event.message
    assert "\n" not in event.message


def demo(seed: int) -> list[jobs.Step]:
    """The demo as README has it: success 0.06, 0.53 in step 10, 0.97 in step 18; then it stays."""
    return run(
        lambda draw, step: trial(draw, logistic(step, 9.8, 2.6, 0.985)),
        lambda draw, step: {**steady(draw, step), "entropy": 0.8 * 0.82**step},
        seed=seed,
        steps=26,
    )


def first_task(seed: int) -> list[jobs.Step]:
    """The task of `podium init` when it showed two examples: success 0.016 in the first of twelve
    steps, 0.70 in the last."""
    return run(lambda draw, step: trial(draw, logistic(step, 9, 2.2, 0.88)), seed=seed, steps=12)


def slow(seed: int) -> list[jobs.Step]:
    """A long run with noise, one version behind."""

    def numbers(draw: random.Random, step: int) -> dict[str, float]:
        off = {"mismatch_kl": draw.uniform(0, 0.01), "clip_fraction": draw.uniform(0, 0.05)}
        return {**steady(draw, step), **off, "entropy": 0.9 - step / 200}

    return run(
        lambda draw, step: trial(draw, 0.2 + 0.4 * step / 120), numbers, seed=seed, age=1, steps=120
    )


def long_game(seed: int) -> list[jobs.Step]:
    """A game that nobody finishes, and that pays for how far one came: points, not successes."""
    turns = pb.STOP_REASON_MAX_TURNS
    return run(
        lambda draw, step: attempt(draw.gauss(120 + 2 * step, 30), stop=turns), seed=seed, steps=60
    )


def at_its_best(seed: int) -> list[jobs.Step]:
    """One that has learned what it can: nothing rises, nothing falls."""
    return run(lambda draw, step: trial(draw, 0.6), seed=seed, steps=60)


def fair_judge(seed: int) -> list[jobs.Step]:
    return run(
        lambda draw, step: attempt(0.0),
        seed=seed,
        judge=judged(lambda draw, place: draw.random()),
    )


def brief_later(seed: int) -> list[jobs.Step]:
    """One that rambles at first, and learns to come to its end."""

    def tries(draw: random.Random, step: int) -> pb.Trajectory:
        cut = draw.random() > logistic(step, 6, 2, 1)
        return attempt(0.0, success=0.0, cut=True) if cut else trial(draw, 0.7)

    return run(tries, seed=seed, steps=20)


def drawn_for_reports(seed: int) -> list[jobs.Step]:
    return job_records.steps(18)


HEALTHY = {
    demo: spec(),
    first_task: spec(),
    slow: AHEAD,
    long_game: spec(),
    at_its_best: spec(),
    fair_judge: RULER,
    brief_later: spec(),
    drawn_for_reports: spec(),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda healthy: healthy.__name__)
def test_of_a_healthy_run_nothing_is_said(
    healthy: Callable[[int], list[jobs.Step]], seed: int
) -> None:
    assert told(healthy(seed), HEALTHY[healthy]) == []


def test_what_is_over_is_told_once() -> None:
    """Too hard for ten steps; then the scenarios are others, and attempts differ."""
    steps = run(
        lambda draw, step: trial(draw, 0.0 if step <= 10 else 0.4 + step / 200), steps=40, seed=1
    )
    said = told(steps, spec())
    assert [(each.kind, finding_of(each.message)) for each in said] == [
        (jobs.EVENT_TYPE_WARNING, reasons.NO_VARIANCE),
        (jobs.EVENT_TYPE_RECOVERY, reasons.NO_VARIANCE),
    ]
    assert open_findings((each.kind, each.message) for each in said) == {}
    assert said[0].message.startswith("step 3: ")
    assert "groups have variance again" in said[1].message


def test_a_solved_task_is_said_to_be_solved() -> None:
    (event,) = told(run(lambda draw, step: attempt(1.0, success=1.0)), spec())
    assert "the task is solved" in event.message
    assert finding_of(event.message) == reasons.TASK_SOLVED


def test_who_takes_over_goes_on_with_what_is_stored() -> None:
    """Each step by another controller, which knows steps and events alone, and sees fewer steps."""
    steps = too_hard(0)
    whole = told(steps, spec())
    known = open_findings((each.kind, each.message) for each in whole)
    assert set(known) == {reasons.NO_VARIANCE}
    assert news(known, steps, spec()) == []
    assert news(known, steps[-4:], spec()) == []


def test_a_curriculum_s_next_stage_is_no_fall() -> None:
    of = spec()
    of.ClearField("environment")
    for name, first in (("easy", 1), ("hard", 13)):
        one = of.environments.add(name=name, from_step=first)
        one.environment.name = name
    of.environments[0].to_step = 12
    steps = run(lambda draw, step: trial(draw, 0.9 if step < 13 else 0.25), steps=24)
    assert [finding_of(each.message) for each in told(steps, spec())] == [reasons.REWARD_FALLING]
    assert told(steps, of) == []


@pytest.mark.parametrize("sick", [too_hard, cut_answers])
def test_a_client_is_told_what_to_change_in_its_own_code(
    sick: Callable[[int], list[jobs.Step]],
) -> None:
    of = spec()
    of.client.SetInParent()
    (event,) = told(sick(0), of)
    assert "client" in event.message
    assert "rollout." not in event.message


def test_supervised_steps_have_no_rewards_to_compare() -> None:
    of = spec(objective=spec_pb2.OBJECTIVE_SUPERVISED)
    assert told(no_exploration(0), of) == []


@functools.cache
def names_of_numbers() -> list[str]:
    """What steps tell, the one kind and the other."""
    return sorted({name for make in (too_large_steps, by_place) for name in make(0)[9].metrics})


ODD = (0.0, -1.0, 1e-300, 1e99, 1e308, -1e308, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_that_are_odd_or_missing_raise_nothing(seed: int) -> None:
    draw = random.Random(seed)
    steps = []
    for number in range(1, 14):
        step = jobs.Step(number=number, group_ids=["g"] * draw.choice((0, 1, 8)))
        for name in (*names_of_numbers(), "groups_skipped/zero_variance", "groups_skipped/made_up"):
            if draw.random() < 0.8:
                odd = draw.random() < 0.5
                step.metrics[name] = draw.choice(ODD) if odd else draw.gauss(1, 1)
        steps.append(step)
    for of in (spec(), RULER, spec_pb2.JobSpec()):
        for each in told(steps, of):
            assert finding_of(each.message)
            assert "nan" not in each.message
    assert news([], [], spec()) == []


def test_groups_of_one_reward_are_nothing_to_tell_of_where_a_teacher_speaks() -> None:
    def found(of: spec_pb2.JobSpec) -> set[str]:
        return {finding_of(each.message) for each in told(too_hard(0), of)}

    assert reasons.NO_VARIANCE in found(spec())
    assert reasons.NO_VARIANCE not in found(spec(teacher_coefficient=1.0))
