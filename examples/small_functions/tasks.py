"""Small tasks for job.yaml: `python examples/small_functions/tasks.py > small_functions.jsonl`.

One expression each, of a dozen kinds. The numbers of held-out tasks stand in no training
task of the kind; the kinds are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

NUMBERS = ([4], [9], [0], [-7], [23], [50])
TEXTS = (["hello"], ["one two three"], ["banana"], ["Good morning"], ["abcdefghij"], ["x y z w v"])
LISTS = ([[9, 8, 7, 6, 5]], [[*range(1, 13)]], [[4, 4, 2]], [[*range(20)]], [[0] * 17])
SIGNATURES = {"number": "n: int", "text": "text: str", "items": "items: list[int]"}
INPUTS: Mapping[str, Sequence[Sequence[Any]]] = {
    "number": NUMBERS,
    "text": TEXTS,
    "items": LISTS,
}

Kind = tuple[str, str, str, Callable[..., Any]]
KINDS: tuple[Kind, ...] = (
    ("number", "int", "Return n plus {k}.", lambda n, k: n + k),
    ("number", "int", "Return {k} times n, plus 1.", lambda n, k: k * n + 1),
    ("number", "int", "Return n minus {k}, and that times 2.", lambda n, k: (n - k) * 2),
    ("number", "int", "Return n times n, minus {k}.", lambda n, k: n * n - k),
    ("number", "int", "Return the remainder of n divided by {k}.", lambda n, k: n % k),
    ("number", "int", "Return n, but at least {k}.", max),
    ("number", "bool", "Return whether n is divisible by {k}.", lambda n, k: n % k == 0),
    ("number", "bool", "Return whether n is greater than {k}.", lambda n, k: n > k),
    ("text", "str", "Return the first {k} letters of the text.", lambda text, k: text[:k]),
    ("text", "str", "Return the text {k} times, one after the other.", lambda text, k: text * k),
    ("items", "list[int]", "Return the list without its first {k} items.", lambda a, k: a[k:]),
    ("items", "int", "Return the sum of the items, plus {k}.", lambda a, k: sum(a) + k),
)
VALUES = {"train": (2, 3, 5, 6, 8, 9, 11, 12), "heldout": (4, 7, 10, 13, 15)}
SHOWN = 2


def tasks() -> Iterator[Mapping[str, Any]]:
    """96 scenarios to train on and 60 held out."""
    for split, values in VALUES.items():
        for k in values:
            for number, (kind, returns, text, solution) in enumerate(KINDS):
                name = f"f{number}_{k}"
                signature = f"def {name}({SIGNATURES[kind]}) -> {returns}:"
                cases = [{"input": given, "output": solution(*given, k)} for given in INPUTS[kind]]
                data = {
                    "function": name,
                    "text": f"{signature}\n{text.format(k=k)}",
                    "examples": cases[:SHOWN],
                    "hidden": cases[SHOWN:],
                }
                yield {"id": f"{split}-{name}", "split": split, "data": data}


if __name__ == "__main__":
    for task in tasks():
        print(json.dumps(task))
