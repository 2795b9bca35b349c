"""Who won of two sides' attempts, and whether the place that a judge saw them at did."""

from __future__ import annotations

from podium.core import skip_reasons
from podium.core.win_rates import alone_and_together, contest, shown_first, wins
from podium.types.v1 import spec_pb2, trajectory_pb2

FAILED = trajectory_pb2.STOP_REASON_FAILED


def attempt(name: str, *, failed: bool = False) -> trajectory_pb2.Trajectory:
    return trajectory_pb2.Trajectory(id=name, stop_reason=FAILED if failed else 0)


def answer(asked: trajectory_pb2.Group | None, **scores: float) -> trajectory_pb2.Group:
    assert asked is not None
    for each in asked.trajectories:
        if each.id in scores:
            each.reward = scores[each.id]
    return asked


def test_an_attempt_beats_a_share_of_the_references_and_a_tie_is_a_half() -> None:
    own, other = [attempt("a"), attempt("b")], [attempt("x"), attempt("y")]
    judged = answer(contest("g", own, other), a=0.7, b=0.1 + 0.2, x=0.3, y=0.9)
    assert wins(own, other, judged) == {"a": 0.5, "b": 0.25}


def test_what_failed_or_said_nothing_loses_and_two_of_them_are_even() -> None:
    own = [attempt("a", failed=True), attempt("b")]
    other = [attempt("x"), attempt("y", failed=True)]
    asked = contest("g", own, other)
    assert asked is not None
    assert [each.id for each in asked.trajectories] == ["b", "x"]
    assert wins(own, other, answer(asked, b=0.2, x=0.9)) == {"a": 0.25, "b": 0.5}
    # One that the judge had nothing to read of.
    assert wins([own[1]], [other[0]], answer(contest("g", [own[1]], [other[0]]), x=0.1)) == {"b": 0}
    # Without two that can be shown nobody is asked.
    assert contest("g", [own[0]], other) is None
    assert wins([own[0]], other, None) == {"a": 0.25}
    assert wins([own[1]], [other[1]], None) == {"b": 1.0}


def test_no_answer_is_no_result_and_the_same_words_are_even() -> None:
    own, other = [attempt("a")], [attempt("x")]
    judged = contest("g", own, other)
    assert judged is not None
    assert wins(own, other, None) is None
    judged.skip_reason = skip_reasons.JUDGE_FAILED
    assert wins(own, other, judged) is None
    judged.skip_reason = skip_reasons.ZERO_VARIANCE
    assert wins(own, other, judged) == {"a": 0.5}
    assert wins(own, [], None) == {}


def test_a_judge_that_favours_the_first_place_is_told_by_both_orders() -> None:
    own, other = [attempt("a")], [attempt("x")]
    judged = contest("g", own, other)
    assert judged is not None
    judgement = judged.judgements.add()
    for places in ((1, 2), (2, 1)):
        opinion = judgement.opinions.add()
        for name, place in zip("ax", places, strict=True):
            score = 0.9 if place == 1 else 0.1
            opinion.attempts.add(trajectory_id=name, score=score, place=place)
    assert shown_first(judged, own) == [1.0, 1.0]
    # Its averages of both orders are even, and so nobody wins by the place.
    assert wins(own, other, answer(judged, a=0.5, x=0.5)) == {"a": 0.5}


def test_ruler_is_asked_in_both_orders_and_weighs_nothing() -> None:
    own = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT, weight=2)
    ruler = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, weight=0.3)
    alone, together = alone_and_together(spec_pb2.RewardSpec(scorers=[own, ruler]))
    assert alone == spec_pb2.RewardSpec(scorers=[own])
    assert together is not None
    assert (together.scorers[0].weight, together.scorers[0].ruler.both_orders) == (1, True)
    assert alone_and_together(spec_pb2.RewardSpec()) == (None, None)
