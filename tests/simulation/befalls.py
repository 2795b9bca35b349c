"""What may befall a world, and when: drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from podium_controller.domain import job_states
from simulation.network import DATABASE, LATE, LATE_SECONDS, LOST, REFUSED
from simulation.world import Controller, World

_PEERS = ("trainer", "inference", "rollout", "judge", "registry")
# In which a controller that goes on, or a call that comes late, may do harm.
_REST = 6.0
_HOLDERS = ("trainer", "inference")
Befall = Callable[[World, random.Random], None]


def disturb(world: World, draw: random.Random, work: int) -> None:
    """Has a few things befall the world within the work that it takes undisturbed."""
    for _ in range(draw.choice((1, 1, 2, 3, 4, 6))):
        befall = draw.choice(world.befalls or _BEFALLS)
        world.loop.at(
            draw.randrange(1, work),
            lambda befall=befall: None if world.is_over else befall(world, draw),
        )


def die(world: World, draw: random.Random) -> None:
    """A controller is killed; another comes."""
    victim = _one(world, draw)
    if victim is None:
        return
    world.say(f"{victim.process.name} dies")
    world.loop.kill(victim.process)
    _another(world, draw)


def stop(world: World, draw: random.Random) -> None:
    """A controller is told to stop; another comes."""
    victim = _one(world, draw)
    if victim is None:
        return
    world.say(f"{victim.process.name} stops")
    victim.stop()
    _another(world, draw)


def freeze(world: World, draw: random.Random) -> None:
    """A controller stands still, for longer than its lease lasts or not, and goes on."""
    victim = _one(world, draw)
    if victim is None:
        return
    # Mostly until its successor is in the middle of the same work.
    seconds = draw.choice((3.0, 60.0, *(draw.uniform(9.0, 22.0) for _ in range(6))))
    world.say(f"{victim.process.name} freezes for {seconds:g} s")
    world.loop.freeze(victim.process)
    world.may_hold = True
    world.unrest(seconds + _REST)
    world.loop.world(seconds, lambda: _thaw(world, victim))
    _another(world, draw)


def cut_off(world: World, draw: random.Random) -> None:
    """A controller cannot reach the database, and all others can."""
    victim = _one(world, draw)
    if victim is None:
        return
    seconds = draw.choice((1.0, 8.0, 30.0))
    world.say(f"{victim.process.name} is cut off for {seconds:g} s")
    world.network.cut_off.add(victim.process)
    world.may_hold = True
    world.loop.world(seconds, lambda: world.network.cut_off.discard(victim.process))
    _another(world, draw)


def lose(world: World, draw: random.Random) -> None:
    """A peer dies with all that it held, and comes back without."""
    peer = draw.choice(_PEERS)
    seconds = draw.choice((0.05, 1.0, 10.0, 40.0))
    world.say(f"{peer} is lost for {seconds:g} s")
    world.network.lose(peer)
    world.may_hold |= peer in _HOLDERS
    if peer == "trainer":
        world.trainer.forget()
    elif peer == "inference":
        world.inference.forget()
    world.loop.world(seconds, lambda: world.network.restore(peer))


def lose_answers(world: World, draw: random.Random) -> None:
    """The database does what it is told, and its answers are lost."""
    world.say("answers of the database are lost")
    world.unrest(LATE_SECONDS + _REST)
    world.network.member(DATABASE).faults += [LOST, LOST]


def cut(world: World, draw: random.Random) -> None:
    """Calls of a peer, or of the database, go wrong."""
    peer = draw.choice((*_PEERS, DATABASE, DATABASE))
    world.unrest(LATE_SECONDS + _REST)
    faults = [draw.choice((REFUSED, LOST, LATE)) for _ in range(draw.choice((1, 1, 2)))]
    world.say(f"calls of {peer}: {', '.join(faults)}")
    world.network.member(peer).faults += faults
    world.may_hold |= peer in _HOLDERS


def orphan(world: World, draw: random.Random) -> None:
    """A controller dies while a peer does late what it was told."""
    world.network.member(draw.choice(("trainer", "trainer", "inference"))).faults.append(LATE)
    world.unrest(LATE_SECONDS + _REST)
    world.may_hold = True
    world.loop.world(draw.uniform(0.1, 3.0), lambda: die(world, draw))


def blackout(world: World, draw: random.Random) -> None:
    """Nobody can reach the database."""
    seconds = draw.choice((0.5, 5.0, 25.0))
    world.say(f"the database is lost for {seconds:g} s")
    world.network.lose(DATABASE)
    world.loop.world(seconds, lambda: world.network.restore(DATABASE))


def pause(world: World, draw: random.Random) -> None:
    """People pause the job and resume it."""
    seconds = draw.choice((0.0, 2.0, 15.0))
    world.say(f"the job is paused for {seconds:g} s")
    world.ask(job_states.after_pause)
    world.loop.world(seconds, lambda: world.ask(job_states.after_resume))


_BEFALLS: tuple[Befall, ...] = (die, die, die, stop, freeze, freeze, cut_off, lose, lose, cut, cut)
_BEFALLS += (orphan, blackout, pause)


def _one(world: World, draw: random.Random) -> Controller | None:
    awake = world.awake()
    return draw.choice(awake) if awake else None


def _another(world: World, draw: random.Random) -> None:
    world.loop.world(draw.choice((0.0, 0.0, 1.0, 15.0)), world.start_controller)


def _thaw(world: World, victim: Controller) -> None:
    world.say(f"{victim.process.name} goes on")
    world.loop.thaw(victim.process)
