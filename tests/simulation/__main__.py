"""`make simulate`: many seeds, on every core."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from prometheus_client.metrics import MetricWrapperBase
from simulation.run import simulate


class _Unread:
    """In the place of each metric of a job: nobody reads them here, and they are a tenth."""

    def inc(self, *_: object, **__: object) -> None:
        pass

    dec = set = observe = inc


def main() -> int:
    """Prints each seed whose job ended otherwise than one left alone, and how many did not."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, default=5, help="failures to print whole")
    options = parser.parse_args()
    began = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    failed, work, controllers = [], 0, 0
    for text, did, had in _outcomes(seeds, options.processes):
        work += did
        controllers += had
        if text:
            failed.append(text)
            if len(failed) <= options.show:
                print(text, flush=True)
    seconds = time.monotonic() - began
    used = sum(
        resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(
        f"{len(seeds)} seeds, {len(failed)} wrong; {controllers} controllers, {work} pieces of"
        f" work; {seconds:.1f} s by {options.processes} processes, {used:.1f} s of processor time"
    )
    return 1 if failed else 0


def _outcomes(seeds: range, processes: int) -> Iterator[tuple[str, int, int]]:
    if processes == 1:
        _quiet()
        yield from map(_outcome, seeds)
        return
    # Whole rows of seeds whose jobs, left alone, are the same one.
    # A process that is killed ends the run with an error; multiprocessing's own pool would wait.
    with ProcessPoolExecutor(processes, initializer=_quiet) as pool:
        yield from pool.map(_outcome, seeds, chunksize=80)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    # Worlds are full of cycles, and what was imported is none: a fourteenth of the time.
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)
    unread = _Unread()
    metric: Any = MetricWrapperBase
    metric.labels = lambda *_, **__: unread
    metric.remove = metric.remove_by_labels = lambda *_, **__: None


def _outcome(seed: int) -> tuple[str, int, int]:
    outcome = simulate(seed)
    return str(outcome) if outcome.wrong else "", outcome.work, outcome.controllers


if __name__ == "__main__":
    sys.exit(main())
