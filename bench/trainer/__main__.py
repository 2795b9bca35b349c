"""`python -m bench.trainer`: the trainer's measurements, equality before time."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podium_trainer.learner.products import Products

from bench.trainer import head_memory, layouts, products, report, whole_step
from bench.trainer.measure import UnequalError, in_child, machine

MODEL = "smollm2-135m-instruct"


def main() -> int:
    """Returns 1 when two ways to compute the same thing differ; a missed target is no error."""
    options = _options()
    _share_openmp()
    parts: dict[str, Callable[[], Any]] = {
        "a": lambda: in_child(layouts.measure, MODEL, options.repeats),
        "b": lambda: _whole_step(options),
        "c": lambda: head_memory.measure(options.repeats),
        "d": lambda: in_child(products.measure, MODEL, options.repeats),
    }
    results: dict[str, Any] = {"machine": machine(), "model": MODEL, "repeats": options.repeats}
    unequal = False
    for name in options.only:
        print(f"{name}: {report.TITLES[name]} ...", flush=True)
        try:
            results[name] = parts[name]()
        except UnequalError as error:
            results[name] = {"unequal": str(error)}
            unequal = True
        # After each part, so that one that fails takes no other's figures with it.
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(report.render(results))
    return int(unequal)


def _whole_step(options: argparse.Namespace) -> dict[str, Any]:
    absent = whole_step.missing()
    if absent:
        return {"skipped": f"{absent} cannot be imported; see requirements/dev.txt"}
    return whole_step.measure(
        MODEL, options.repeats, options.trl_checkpointing, options.seeds, options.products
    )


def _share_openmp() -> None:
    """Gives every child the OpenMP that the inference service gives its engine.

    With GNU's, which torch brings, a step beside other work was seen to take ten times as
    long, on either side: the ratio would be that of the other work.
    """
    openmp = Path(sys.prefix, "lib", "libiomp5.so")
    if openmp.exists():
        os.environ.setdefault("LD_PRELOAD", str(openmp))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.trainer", description=__doc__)
    parser.add_argument("--only", type=_parts, default="a,b,c,d", help="parts, as in a,c")
    parser.add_argument(
        "--repeats", type=_positive, default=5, help="timed repeats after one warm-up"
    )
    parser.add_argument("--seeds", type=_positive, default=1, help="runs of b, a seed each")
    parser.add_argument(
        "--products",
        choices=[str(kind) for kind in Products],
        default="torch",
        help="how Podium multiplies by frozen weights in b",
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench/trainer.json"))
    parser.add_argument(
        "--trl-checkpointing",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether TRL makes activations twice, as it does by default",
    )
    return parser.parse_args()


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if not set(names) <= report.TITLES.keys():
        raise argparse.ArgumentTypeError(f"got {text}; parts are {', '.join(report.TITLES)}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}; allowed is 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
