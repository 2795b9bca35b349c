"""What a process of the fuzz does: one job after another, each over a registry of its own."""

from __future__ import annotations

import asyncio
import logging

from fuzz.stack import Counts, fuzz
from support.fleet import fleet_of_doubles
from support.processes import running_registry


def begin() -> None:
    """Warnings are not printed; defects are counted."""
    logging.getLogger().addHandler(logging.NullHandler())


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
