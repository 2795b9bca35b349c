"""How long a controller leads whose lease it cannot renew."""

from __future__ import annotations

import pytest
from simulation.network import DATABASE
from simulation.record import record_of
from simulation.run import live, undisturbed
from simulation.scenario import Shape
from simulation.world import World, clocks_of
from support.fakes.leases import CONTROLLER

pytestmark = pytest.mark.usefixtures("quiet")

_SHAPE = Shape(steps=3)
_LONG = Shape(steps=20)


@pytest.mark.parametrize(("seconds", "leases"), [(14.0, 1), (25.0, 2)])
def test_a_lone_controller_leads_on_after_a_database_that_was_away_for_longer_than_its_lease(
    seconds: float, leases: int
) -> None:
    world = World(_SHAPE, 0, disturbed=False)
    world.loop.world(1.0, lambda: world.network.lose(DATABASE))
    world.loop.world(1.0 + seconds, lambda: world.network.restore(DATABASE))
    with clocks_of(world, 0):
        live(world)
        assert world.database.leases[CONTROLLER].epoch == leases
        assert record_of(world).state == undisturbed(_SHAPE).state


def test_a_controller_that_cannot_renew_makes_room_for_one_that_can() -> None:
    world = World(_LONG, 0, disturbed=False)
    world.loop.world(1.0, lambda: world.network.cut_off.add(world.controllers[0].process))
    world.loop.world(1.0, world.start_controller)
    runs: list[int] = []
    world.loop.world(35.0, lambda: runs.append(len(world.controllers[0].scheduler._runs)))
    with clocks_of(world, 0):
        live(world)
        assert (world.database.leases[CONTROLLER].epoch, runs) == (2, [0])
        assert record_of(world).state == undisturbed(_LONG).state
