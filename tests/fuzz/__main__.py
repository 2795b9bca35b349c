"""`make fuzz`: replies, calls and judges' answers at their worst through the real services."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from fuzz.process import begin, one_job
from fuzz.stack import Counts


def main() -> int:
    """Prints what went wrong with the seed of its job, and how much was said; 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--replies", type=int, default=100_000, help="of the policy, at least")
    parser.add_argument("--first", type=int, default=0, help="the first job's seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, default=5, help="faults to print whole")
    options = parser.parse_args()
    began = time.monotonic()
    total = Counts()
    for counts in _jobs(options.first, options.replies, options.processes):
        total.add(counts)
        for text in counts.wrong[: options.show]:
            print(text, flush=True)
        print(_said(total, time.monotonic() - began), flush=True)
    return 1 if total.wrong else 0


def _said(total: Counts, seconds: float) -> str:
    return (
        f"{total.replies} replies, {total.calls} calls, {total.answers} answers of judges in"
        f" {total.jobs} jobs: {len(total.wrong)} faults; {seconds:.0f} s,"
        f" {total.replies / seconds:.0f} replies/s"
    )


def _jobs(first: int, replies: int, processes: int) -> Iterator[Counts]:
    """One job after another in each process, until enough has been said."""
    said = 0
    seeds = itertools.count(first)
    # Threads of gRPC do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=begin) as pool:
        running: set[Future[Counts]] = {pool.submit(one_job, next(seeds)) for _ in range(processes)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                counts = future.result()
                said += counts.replies
                if said < replies:
                    running.add(pool.submit(one_job, next(seeds)))
                yield counts


if __name__ == "__main__":
    sys.exit(main())
