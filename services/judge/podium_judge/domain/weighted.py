"""Reads what the weighted criteria need from a trajectory, and applies them.

Keys of `Trajectory.info`, all optional unless said otherwise:

=============  =========================================================================
`result`       the attempt's outcome: a text, a mapping, or a number; for `email_search`
               the final state with `selected_email` {subject, body, sender}; for
               `code_generation` the code; for `question_answering` the answer
`expected`     the right outcome, same shape as `result`; for `email_search`
               {`keywords`: [...], `sender`: "..."} (required); for
               `question_answering` a text or a list of accepted texts (required)
`required`     kinds of information that a complete attempt gives (list of texts)
`provided`     kinds of information that it gave (list of texts)
=============  =========================================================================

Keys of `Trajectory.metrics`: `actions` (else `turns`, else the assistant messages are
counted), `errors` (else 0), `seconds` (else end_time - start_time, else 0), and for
`code_generation` `tests_passed` and `tests_total`. An attempt is done when its
stop_reason is STOP_REASON_TERMINATED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.outside import count_of, plain_of
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_judge.domain import criteria
from podium_judge.domain.scores import Score, Unscored

_WEIGHT_TOLERANCE = 1e-6


class MissingDataError(Exception):
    """The trajectory lacks what the criterion needs; the text says which key."""


class _Attempt:
    """One trajectory as the criteria see it."""

    def __init__(self, trajectory: trajectory_pb2.Trajectory) -> None:
        self.trajectory = trajectory
        self.info: dict[str, Any] = plain_of(trajectory.info)
        self.done = trajectory.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED

    def texts(self, key: str) -> list[str]:
        value = self.info.get(key, [])
        return [str(item) for item in (value if isinstance(value, list) else [value])]

    def need(self, key: str) -> Any:
        value = self.info.get(key)
        if value is None:
            raise MissingDataError(f"info.{key} is missing")
        return value

    @property
    def actions(self) -> int:
        metrics = self.trajectory.metrics
        for name in ("actions", "turns"):
            if name in metrics:
                return count_of(metrics[name])
        return sum(
            message.role == trajectory_pb2.ROLE_ASSISTANT
            for history in self.trajectory.histories
            for message in history.messages
        )

    @property
    def seconds(self) -> float:
        if "seconds" in self.trajectory.metrics:
            return self.trajectory.metrics["seconds"]
        if not self.trajectory.HasField("start_time") or not self.trajectory.HasField("end_time"):
            return 0.0
        start, end = self.trajectory.start_time, self.trajectory.end_time
        return max(0.0, end.seconds - start.seconds + (end.nanos - start.nanos) / 1e9)


def _general(attempt: _Attempt) -> float:
    return criteria.general_accuracy(
        attempt.info.get("result"), attempt.info.get("expected"), attempt.done
    )


def _email_search(attempt: _Attempt) -> float:
    expected = attempt.need("expected")
    if not isinstance(expected, Mapping):
        raise MissingDataError("info.expected is no mapping with keywords and sender")
    keywords = expected.get("keywords") or []
    return criteria.email_accuracy(
        attempt.info.get("result"),
        [str(word) for word in (keywords if isinstance(keywords, list) else [keywords])],
        str(expected.get("sender") or ""),
    )


def _code_generation(attempt: _Attempt) -> float:
    expected = attempt.info.get("expected")
    metrics = attempt.trajectory.metrics
    return criteria.code_accuracy(
        str(attempt.info.get("result") or ""),
        count_of(metrics.get("tests_passed")),
        count_of(metrics.get("tests_total")),
        None if expected is None else str(expected),
    )


def _question_answering(attempt: _Attempt) -> float:
    attempt.need("expected")
    return criteria.answer_accuracy(
        str(attempt.info.get("result") or ""), attempt.texts("expected")
    )


_ACCURACY: dict[str, Callable[[_Attempt], float]] = {
    "general": _general,
    "email_search": _email_search,
    "code_generation": _code_generation,
    "question_answering": _question_answering,
}


class WeightedScorer:
    """Scores each attempt by itself with the four weighted criteria."""

    kind = "weighted"

    def __init__(self, spec: spec_pb2.WeightedCriteria, field: str) -> None:
        """`spec` has its defaults filled in; `field` is its path in the request.

        Raises:
            InvalidArgumentError: an unknown task_type, or weights that do not sum to 1.
        """
        violations = []
        if spec.task_type not in _ACCURACY:
            violations.append(
                Violation(
                    f"{field}.task_type",
                    f"got {spec.task_type!r}; allowed are {', '.join(sorted(_ACCURACY))}",
                )
            )
        self._weights = criteria.CriteriaScores(
            spec.accuracy, spec.efficiency, spec.completeness, spec.satisfaction
        )
        total = spec.accuracy + spec.efficiency + spec.completeness + spec.satisfaction
        if abs(total - 1.0) > _WEIGHT_TOLERANCE:
            violations.append(
                Violation(
                    field,
                    f"accuracy + efficiency + completeness + satisfaction is {total:g}; "
                    "allowed is a sum of 1",
                )
            )
        if violations:
            raise InvalidArgumentError(violations=violations)
        self._accuracy = _ACCURACY[spec.task_type]
        self._optimal_actions = spec.optimal_actions

    def score(self, trajectory: trajectory_pb2.Trajectory) -> Score | Unscored:
        """The attempt's score in [0, 1], or why it has none."""
        attempt = _Attempt(trajectory)
        try:
            accuracy = self._accuracy(attempt)
        except MissingDataError as error:
            return Unscored(f"weighted: {error}")
        parts = criteria.CriteriaScores(
            accuracy=accuracy,
            efficiency=criteria.efficiency(attempt.actions, self._optimal_actions),
            completeness=criteria.completeness(
                attempt.texts("required"), attempt.texts("provided"), attempt.done
            ),
            satisfaction=criteria.satisfaction(
                count_of(trajectory.metrics.get("errors")), attempt.seconds
            ),
        )
        return Score(
            parts.total(self._weights),
            f"accuracy {parts.accuracy:.3f}, efficiency {parts.efficiency:.3f}, "
            f"completeness {parts.completeness:.3f}, satisfaction {parts.satisfaction:.3f}",
        )
