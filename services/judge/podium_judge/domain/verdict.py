"""What the judge model may answer, and the check that it did."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from podium.core.outside import clean

from podium_judge.domain.scores import Score

_MAX_EXPLANATION_CHARS = 2000
_FENCE = re.compile(r"^```[a-zA-Z]*\s*(.*?)\s*```$", re.DOTALL)
_END_OF_THINKING = "</think>"
# An object with a key, or a list of objects; the bound keeps a text of brackets cheap to read.
_BEGINNING = re.compile(r'\{\s*"|\[\s*\{')
_MOST_BEGINNINGS = 500
_NUMERAL = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?")
_LENIENT = json.JSONDecoder()


class VerdictError(Exception):
    """The answer cannot be used; the text tells the judge model what to mend."""


@dataclass(frozen=True)
class Subject:
    """What an answer has a score for each of."""

    name: str
    key: str
    """Its label in an entry of the answer."""
    title: str
    """The label in words."""

    def ordered(self, labels: Sequence[str]) -> list[str]:
        """Attempts by number, and anything else as it comes."""
        return sorted(labels, key=int) if self is ATTEMPT else list(labels)


ATTEMPT = Subject("attempt", "attempt_id", "attempt id")
CRITERION = Subject("criterion", "criterion", "criterion")


def schema(labels: Sequence[str], subject: Subject = ATTEMPT) -> dict[str, Any]:
    """JSON Schema of an answer about the attempts, or criteria, `labels`.

    The explanation comes first: the model reasons before it commits to a number.
    """
    entry = {
        "type": "object",
        "properties": {
            subject.key: {"type": "string", "enum": subject.ordered(labels)},
            "explanation": {"type": "string"},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": [subject.key, "explanation", "score"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "scores": {
                "type": "array",
                "items": entry,
                "minItems": len(labels),
                "maxItems": len(labels),
            }
        },
        "required": ["scores"],
        "additionalProperties": False,
    }


def _no_constant(name: str) -> NoReturn:
    raise VerdictError(f"{name} is not a JSON number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise VerdictError("a JSON object has the same key twice")
    return dict(pairs)


def strictly(text: str) -> Any:
    """JSON as its standard has it: no NaN, and no key twice.

    Raises:
        VerdictError: it is not.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        raise VerdictError(f"the answer is not one JSON object ({error})") from None


def _answers(text: str) -> Iterator[str]:
    """The JSON values in a text that look like an answer: those with scores in them."""
    starts = [match.start() for match in _BEGINNING.finditer(text)]
    end = 0
    for start in starts[-_MOST_BEGINNINGS:]:
        if start < end:
            continue
        try:
            # Leniently: a value that is not allowed is one all the same, and not its parts.
            value, end = _LENIENT.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if _is_list_of_scores(value) or (isinstance(value, dict) and "scores" in value):
            yield text[start:end]


def _is_list_of_scores(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(item, dict) and "score" in item for item in value
    )


def _number(value: Any) -> float | None:
    """A number, or a numeral in a string; None for anything else."""
    if isinstance(value, str) and _NUMERAL.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _entry(item: Any, subject: Subject) -> tuple[str, Score]:
    if not isinstance(item, dict):
        raise VerdictError("an entry of `scores` is not an object")
    label, value = item.get(subject.key), item.get("score")
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if not isinstance(label, str):
        raise VerdictError(f"an entry of `scores` has no {subject.key}")
    number = _number(value)
    if number is None:
        raise VerdictError(f"the score of {subject.name} {label[:40]!r} is not a number")
    if not math.isfinite(number) or not 0 <= number <= 1:
        raise VerdictError(
            f"the score of {subject.name} {label[:40]!r} is {number:g}; allowed is 0 to 1"
        )
    explanation = item.get("explanation")
    words = explanation if isinstance(explanation, str) else ""
    return label, Score(number, clean(words[:_MAX_EXPLANATION_CHARS]))


def parse(text: str, labels: Sequence[str], subject: Subject = ATTEMPT) -> list[Score]:
    """The scores of the attempts, or criteria, `labels`, in their order, joined by id.

    Whatever else the model says, the last object that fits is its answer: the words after
    its thinking are read, and the thinking only when no answer is in them. A list of
    scores stands for the object around it, a mapping of criteria to scores for the list, and
    a numeral in a string for the number.

    Raises:
        VerdictError: no JSON, an id that is missing, unknown or there twice, or a
            score that is no number in [0, 1]; of several answers, what is wrong with the last.
    """
    thought, _, said = text.rpartition(_END_OF_THINKING)
    found = list(_answers(said)) or list(_answers(thought))
    if not found:
        # Says where it stops being JSON, which is all that it was asked for.
        answer = strictly(_unfenced(said))
        raise VerdictError(
            "the answer has no list `scores`"
            if isinstance(answer, dict | list)
            else "the answer is not one JSON object"
        )
    complaint = None
    for each in reversed(found):
        try:
            return _scores(strictly(each), labels, subject)
        except VerdictError as error:
            complaint = complaint or error
    assert complaint is not None
    raise complaint


def _unfenced(text: str) -> str:
    text = text.strip()
    fenced = _FENCE.match(text)
    return fenced.group(1) if fenced else text


def _scores(answer: Any, labels: Sequence[str], subject: Subject) -> list[Score]:
    entries = answer["scores"] if isinstance(answer, dict) else answer
    if isinstance(entries, dict) and subject is CRITERION:
        entries = [
            {**(item if isinstance(item, dict) else {"score": item}), subject.key: label}
            for label, item in entries.items()
        ]
    if not isinstance(entries, list):
        raise VerdictError("the answer has no list `scores`")
    scores: dict[str, Score] = {}
    for item in entries:
        label, score = _entry(item, subject)
        if label not in labels:
            raise VerdictError(f"there is no {subject.name} {label[:40]!r}")
        if label in scores:
            raise VerdictError(f"{subject.name} {label!r} is scored twice")
        scores[label] = score
    if missing := subject.ordered([label for label in labels if label not in scores]):
        many = "attempts" if subject is ATTEMPT else "criteria"
        raise VerdictError(f"{many} without a score: {', '.join(missing)}")
    return [scores[label] for label in labels]
