"""Whether a job can have the trainer that it asks for, before it is queued."""

from __future__ import annotations

from podium.core.contract.text import nearest
from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

from podium_controller.domain.ports import Trainers
from podium_controller.pools.trainer_pools import TrainerPools, obstacles, wants_own

_POOL = "job.spec.trainer.pool"


async def check_trainer(
    spec: spec_pb2.JobSpec, trainers: Trainers, pools: TrainerPools
) -> list[Violation]:
    """What is wrong with where a job is to train."""
    if spec.trainer.pool:
        return _named(spec, pools)
    fitting = [offer for offer in pools.offers() if offer.may_hold(spec.base_model)]
    if fitting and not wants_own(spec):
        return []
    if trainers.own == 0:
        return _alone(spec, pools)
    return await trainers.violations(spec.trainer)


def _named(spec: spec_pb2.JobSpec, pools: TrainerPools) -> list[Violation]:
    name = spec.trainer.pool
    found = []
    if spec.trainer.dedicated:
        text = f"got true with pool {name!r}; allowed is one of the two"
        found.append(Violation("job.spec.trainer.dedicated", text))
    known = {offer.pool.name: offer for offer in pools.offers()}
    if not known:
        text = f"got {name!r}; allowed is none: this installation has no trainer pools"
        return [*found, Violation(_POOL, text)]
    if name not in known:
        text = f"got {name!r}; allowed are {', '.join(sorted(known))}{nearest(name, known)}"
        return [*found, Violation(_POOL, text)]
    if not known[name].may_hold(spec.base_model):
        fitting = sorted(each for each in known if known[each].may_hold(spec.base_model))
        text = f"got {name!r}, which trains {known[name].pool.base_model!r}; for"
        text += f" {spec.base_model!r} allowed is {' or '.join(fitting) or 'none of the pools'}"
        found.append(Violation(_POOL, text))
    for field, got, allowed in obstacles(spec):
        text = f"got {got} with trainer.pool {name!r}; allowed at a trainer pool is {allowed}"
        found.append(Violation(f"job.spec.{field}", text))
    return found


def _alone(spec: spec_pb2.JobSpec, pools: TrainerPools) -> list[Violation]:
    """For a job that needs a trainer of its own where there are none."""
    why = "this installation has trainer pools alone"
    found = [
        Violation(f"job.spec.{field}", f"got {got}; allowed is {allowed}: {why}")
        for field, got, allowed in obstacles(spec)
    ]
    if spec.trainer.dedicated:
        found.append(Violation("job.spec.trainer.dedicated", f"got true; allowed is false: {why}"))
    if not found:
        trained = sorted({offer.pool.base_model for offer in pools.offers()})
        text = f"got {spec.base_model!r}; {why}, which train {', '.join(trained)}"
        found.append(Violation("job.spec.base_model", text))
    return found
