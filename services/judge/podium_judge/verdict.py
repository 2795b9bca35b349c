"""What the judge model may answer, and the check that it did."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from podium_judge.scores import Score

_MAX_EXPLANATION_CHARS = 2000
_FENCE = re.compile(r"^```[a-zA-Z]*\s*(.*?)\s*```$", re.DOTALL)


class VerdictError(Exception):
    """The answer cannot be used; the text tells the judge model what to mend."""


def schema(labels: Sequence[str]) -> dict[str, Any]:
    """JSON Schema of an answer about the attempts `labels`.

    The explanation comes first: the model reasons before it commits to a number.
    """
    entry = {
        "type": "object",
        "properties": {
            "attempt_id": {"type": "string", "enum": sorted(labels, key=int)},
            "explanation": {"type": "string"},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["attempt_id", "explanation", "score"],
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


def _load(text: str) -> Any:
    text = text.strip()
    if fenced := _FENCE.match(text):
        text = fenced.group(1)
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        raise VerdictError(f"the answer is not one JSON object ({error})") from None


def _entry(item: Any) -> tuple[str, Score]:
    if not isinstance(item, dict):
        raise VerdictError("an entry of `scores` is not an object")
    label, value = item.get("attempt_id"), item.get("score")
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if not isinstance(label, str):
        raise VerdictError("an entry of `scores` has no attempt_id")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise VerdictError(f"the score of attempt {label!r} is not a number")
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise VerdictError(f"the score of attempt {label!r} is {value}; allowed is 0 to 1")
    explanation = item.get("explanation")
    words = explanation if isinstance(explanation, str) else ""
    return label, Score(float(value), words[:_MAX_EXPLANATION_CHARS])


def parse(text: str, labels: Sequence[str]) -> list[Score]:
    """The scores of the attempts `labels`, in their order, joined by id.

    Raises:
        VerdictError: no JSON, an id that is missing, unknown or there twice, or a
            score that is no number in [0, 1].
    """
    answer = _load(text)
    entries = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise VerdictError("the answer has no list `scores`")
    scores: dict[str, Score] = {}
    for item in entries:
        label, score = _entry(item)
        if label not in labels:
            raise VerdictError(f"there is no attempt {label[:40]!r}")
        if label in scores:
            raise VerdictError(f"attempt {label!r} is scored twice")
        scores[label] = score
    if missing := sorted(set(labels) - scores.keys(), key=int):
        raise VerdictError(f"attempts without a score: {', '.join(missing)}")
    return [scores[label] for label in labels]
