"""What a process of the fuzz does: one job after another, each over a registry of its own."""

from __future__ import annotations

import asyncio
import logging
from multiprocessing.sharedctypes import Synchronized

from fuzz.stack import Counts, fuzz
from support.fleet import fleet_of_doubles
from support.processes import running_registry, take_ports_of


def begin(numbers: Synchronized[int]) -> None:
    """Warnings are not printed; defects are counted. Each process has ports of its own."""
    logging.getLogger().addHandler(logging.NullHandler())
    with numbers.get_lock():
        take_ports_of(numbers.value)
        numbers.value += 1


def one_job(seed: int) -> Counts:
    """A job of that seed to its end."""
    registry = next(services := running_registry())

    async def run() -> Counts:
        async with fleet_of_doubles(registry) as fleet:
            return await fuzz(seed, fleet)

    try:
        return asyncio.run(run())
    except Exception as error:
        return Counts(wrong=[f"seed {seed}: it did not come to its end: {error!r}"])
    finally:
        services.close()
