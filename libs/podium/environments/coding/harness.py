"""Runs inside the sandbox: calls a submission.

It is told nothing that a submission could gain by reading: inputs come one at
a time, and what is expected stays outside. A submission may take over this
process; it can then only answer what it was going to be asked anyway.
"""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO


def main() -> None:
    """Answers each line of input with one line: the same `id`, and `value` or `error`."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        # What a submission prints is no answer.
        os.dup2(nowhere, stream)
    submission = json.loads(questions.readline())
    namespace: dict[str, Any] = {"__name__": "submission"}
    _answer(answers, submission["id"], lambda: exec(submission["code"], namespace))
    for line in questions:
        question = json.loads(line)
        _answer(
            answers,
            question["id"],
            lambda asked=question: namespace[submission["function"]](*asked["input"]),
        )


def _answer(answers: BinaryIO, identifier: str, call: Any) -> None:
    try:
        text = json.dumps({"id": identifier, "value": call()})
    except BaseException as error:
        text = json.dumps({"id": identifier, "error": f"{type(error).__name__}: {error}"[:300]})
    answers.write(text.encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
