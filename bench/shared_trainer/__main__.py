"""`python -m bench.shared_trainer`: four jobs on one trainer, at once and one after another."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from podium.core.statistics import paired_interval

from bench.shared_trainer.side import JOBS, Side, Work, run
from bench.shared_trainer.stack import Tempo, build_model

TARGET = 2.0
"""Times the jobs an hour of one after another."""
LONE, SHARED = "one after another", "shared"
_TRIED_MS = 3.0
_AT_ONCE = {LONE: 1, SHARED: len(JOBS)}


class UnequalError(Exception):
    """A job came to other files beside others than alone."""


def main() -> int:
    """Returns 0; a missed target is printed, and no error."""
    options = _options()
    logging.disable(logging.WARNING)
    work = Work(options.steps, options.groups, options.attempts, options.turns)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = build_model(Path(folder) / "model", options.hidden, options.layers)
        for share in options.share:
            place = Path(folder) / f"{share:g}"
            tempo = asyncio.run(_tempo(place, model, work, options, share))
            rounds = asyncio.run(_rounds(place, model, tempo, work, options.rounds))
            found.append({"tempo": asdict(tempo), "work": asdict(work), **_summary(rounds)})
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


async def _tempo(
    folder: Path, model: Path, work: Work, options: argparse.Namespace, share: float
) -> Tempo:
    """A pool that is as slow as makes generation about that share of a lone step, as of now."""
    tried = Tempo(_TRIED_MS, options.median, options.knee)
    lone = await run(folder / "tried", model, tried, replace(work, steps=2), 1)
    wanted = lone.trained * share / (1 - share)
    return replace(tried, token_ms=_TRIED_MS * wanted / lone.collected)


async def _rounds(
    folder: Path, model: Path, tempo: Tempo, work: Work, rounds: int
) -> list[dict[str, Side]]:
    """Each way once a round; which goes first alternates.

    Raises:
        UnequalError: a job's last version is not the same in both, or in another round.
    """
    found: list[dict[str, Side]] = []
    for number in range(rounds):
        order = (LONE, SHARED) if number % 2 == 0 else (SHARED, LONE)
        sides: dict[str, Side] = {}
        for way in order:
            place = folder / f"{number}-{_AT_ONCE[way]}"
            sides[way] = await run(place, model, tempo, work, _AT_ONCE[way])
            first = next(iter((found[0] if found else sides).values()))
            for job, files in sides[way].files.items():
                if files != first.files[job]:
                    raise UnequalError(f"{job}, {way}, round {number + 1}: other files")
        if len(set(sides[LONE].files.values())) != len(JOBS):
            raise UnequalError("two jobs came to the same files, so that equality says nothing")
        lone, shared = sides[LONE], sides[SHARED]
        print(
            f"  round {number + 1}, load {os.getloadavg()[0]:.0f}: {lone.jobs_an_hour:.0f} jobs an"
            f" hour one after another, {shared.jobs_an_hour:.0f} shared,"
            f" {lone.seconds / shared.seconds:.2f} times; of a lone step"
            f" {_share(lone):.2f} is generation; bound {_bound(lone):.2f}",
            flush=True,
        )
        found.append(sides)
    return found


def _summary(rounds: list[dict[str, Side]]) -> dict[str, Any]:
    ratios = [sides[LONE].seconds / sides[SHARED].seconds for sides in rounds]
    lone = [sides[LONE] for sides in rounds]
    shared = [sides[SHARED] for sides in rounds]
    interval = paired_interval(ratios)
    bound = median(map(_bound, lone))
    within = f" (95 %: {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    print(
        f"equal files of each job's last version, {len(rounds)} rounds; generation is"
        f" {median(map(_share, lone)):.2f} of a lone step: one after another"
        f" {median(each.jobs_an_hour for each in lone):.0f} jobs an hour, shared"
        f" {median(each.jobs_an_hour for each in shared):.0f}, {fmean(ratios):.2f} times{within};"
        f" bound {bound:.2f}; target {TARGET:g}: {'met' if fmean(ratios) >= TARGET else 'MISSED'}",
        flush=True,
    )
    return {
        "ratios": ratios,
        "interval": interval,
        "bound": bound,
        "share": median(map(_share, lone)),
        "lone": [_numbers(each) for each in lone],
        "shared": [_numbers(each) for each in shared],
    }


def _share(lone: Side) -> float:
    """Of generation in the steps of jobs that are alone."""
    return lone.collected / (lone.collected + lone.trained)


def _bound(lone: Side) -> float:
    """What a trainer that never waits would come to, or the longest job, which waits for nobody."""
    return lone.seconds / max(lone.trained, lone.longest)


def _numbers(side: Side) -> dict[str, float]:
    return {name: value for name, value in asdict(side).items() if name != "files"}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.shared_trainer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--share", type=float, nargs="+", default=[0.42, 0.75], help="of generation in a lone step"
    )
    parser.add_argument("--median", type=float, default=48.0, help="tokens of an answer")
    parser.add_argument("--knee", type=float, default=0.0, help="sequences; 0 for no limit")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--groups", type=int, default=4, help="a step")
    parser.add_argument("--attempts", type=int, default=8, help="a group")
    parser.add_argument("--turns", type=int, default=3, help="an episode")
    parser.add_argument("--hidden", type=int, default=192, help="size of the model")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
