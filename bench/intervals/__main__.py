"""`python -m bench.intervals`: in simulations whose truth is known, how often it is held."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy
import numpy.typing
from podium.core.statistics import (
    clustered_mean_interval,
    clustered_proportion_interval,
    paired_interval,
)

RATES = (0.05, 0.3, 0.5, 0.9)
SCENARIOS = (10, 32, 100)
ATTEMPTS = (1, 4, 8, 16)
ALIKE, APART = "alike", "apart"
LEAST, MOST = 93.0, 97.0
"""Target, in percent; small numbers of scenarios may be above."""
_PAID, _UNPAID = (0.5, 1.0), (0.0, 0.2)
"""Between which a success and a failure are rewarded."""

Numbers = numpy.typing.NDArray[numpy.float64]


def main() -> int:
    """A missed target is printed and is no error."""
    options = _options()
    found = [*_ones(options.draws), *_differences(options.draws)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    for kind in (ALIKE, APART, "difference"):
        print(f"\n{kind}\n{_table([row for row in found if row['kind'] == kind])}")
    low = [row for row in found if min(row["success"], row["reward"]) < LEAST]
    print(f"\n{len(low)} of {len(found)} cells below {LEAST:g} %")
    return 0


def _ones(draws: int) -> Iterator[dict[str, Any]]:
    """Of one agent: how often success and reward are held, in percent."""
    for kind in (ALIKE, APART):
        for rate in RATES:
            for scenarios in SCENARIOS:
                for attempts in ATTEMPTS:
                    rng = numpy.random.default_rng([round(100 * rate), scenarios, attempts])
                    cell = {"rate": rate, "scenarios": scenarios, "attempts": attempts}
                    held = _held(rng, kind, draws, rate, scenarios, attempts)
                    yield {"kind": kind, **cell, **held}


def _held(
    rng: numpy.random.Generator, kind: str, draws: int, rate: float, scenarios: int, attempts: int
) -> dict[str, float]:
    success = reward = 0
    truth = rate * fmean(_PAID) + (1 - rate) * fmean(_UNPAID)
    for _ in range(draws):
        rates = _rates(rng, kind, rate, scenarios)
        drawn = _drawn(rng, rates, attempts)
        low, high = clustered_proportion_interval(drawn.tolist())
        success += low <= rate <= high
        bounds = clustered_mean_interval(_rewards(rng, drawn).tolist(), drawn.tolist())
        assert bounds is not None
        reward += bounds[0] <= truth <= bounds[1]
    return {"success": 100 * success / draws, "reward": 100 * reward / draws}


def _differences(draws: int) -> Iterator[dict[str, Any]]:
    """Of two agents on the same scenarios, the second of which is better by a third of what is
    left.
    """
    for rate in RATES:
        for scenarios in SCENARIOS:
            for attempts in ATTEMPTS:
                rng = numpy.random.default_rng([7, round(100 * rate), scenarios, attempts])
                success = reward = 0
                gain = (1 - rate) / 3
                pay = gain * (fmean(_PAID) - fmean(_UNPAID))
                for _ in range(draws):
                    rates = _rates(rng, APART, rate, scenarios)
                    one = _drawn(rng, rates, attempts)
                    two = _drawn(rng, rates + (1 - rates) / 3, attempts)
                    success += _holds(gain, two.mean(1) - one.mean(1), 2 / attempts)
                    paid = _rewards(rng, two).mean(1) - _rewards(rng, one).mean(1)
                    reward += _holds(pay, paid, 0.0)
                cell = {"rate": rate, "scenarios": scenarios, "attempts": attempts}
                held = {"success": 100 * success / draws, "reward": 100 * reward / draws}
                yield {"kind": "difference", **cell, **held}


def _holds(truth: float, differences: Numbers, pseudo: float) -> bool:
    bounds = paired_interval(differences.tolist(), pseudo)
    assert bounds is not None
    return bounds[0] <= truth <= bounds[1]


def _rates(rng: numpy.random.Generator, kind: str, rate: float, scenarios: int) -> Numbers:
    """Of each scenario; `apart` by a beta distribution, most of them near 0 or 1."""
    if kind == ALIKE:
        return numpy.full(scenarios, rate)
    return rng.beta(rate, 1 - rate, scenarios)


def _drawn(rng: numpy.random.Generator, rates: Numbers, attempts: int) -> Numbers:
    """Successes, [scenarios, attempts]."""
    return (rng.random((len(rates), attempts)) < rates[:, None]).astype(float)


def _rewards(rng: numpy.random.Generator, successes: Numbers) -> Numbers:
    paid, unpaid = (rng.uniform(*each, successes.shape) for each in (_PAID, _UNPAID))
    return numpy.where(successes > 0, paid, unpaid)


def _table(rows: list[dict[str, Any]]) -> str:
    """As the documents have it: success and reward of each number of attempts."""
    heads = [f"{name} {count}" for name in ("success", "reward") for count in ATTEMPTS]
    lines = [f"| rate | scenarios | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for rate in RATES:
        for scenarios in SCENARIOS:
            own = {
                row["attempts"]: row
                for row in rows
                if (row["rate"], row["scenarios"]) == (rate, scenarios)
            }
            cells = [f"{own[k][name]:.1f}" for name in ("success", "reward") for k in ATTEMPTS]
            lines.append(f"| {rate} | {scenarios} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000, help="evaluations of each cell")
    parser.add_argument("--output", type=Path, default=Path("build/bench/intervals.json"))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
