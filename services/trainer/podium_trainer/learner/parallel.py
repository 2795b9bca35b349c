"""The processes that train one job together, and what they say to each other.

Weights and optimizer are sharded over all of them by FSDP2; rows are dealt out. Every
process reads the same batch, so only gradients, statistics and the commands of the
first one travel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from podium_trainer.domain.packing import Row
from podium_trainer.learner.network import Network, blocks

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many, and where it computes."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup | None = None
    """What `tell` and `agree` go through: the others wait there as long as it takes."""
    background: dist.ProcessGroup | None = None
    """What weights to be served go through while the next step is taken."""
    behind: dist.ProcessGroup | None = None
    """What their state goes through: it may be on its way when the next weights are."""

    @property
    def sharded(self) -> bool:
        """Whether weights are sharded and processes meet: with a mesh, which may be of one."""
        return self.mesh is not None

    @property
    def mark(self) -> str:
        """What tells this process's files from the others'; empty with one process."""
        return f"-{self.rank + 1:05d}-of-{self.size:05d}" if self.sharded else ""

    def deal(self, rows: Sequence[Row]) -> list[tuple[Row, bool]]:
        """This process's rows, as many as every other's, and whether each counts.

        By decreasing size, back and forth, so that the sums of sizes are near each
        other too. Where rows are too few, the smallest comes again and does not count:
        its process must still take part in gathering weights and adding gradients.
        """
        if not self.sharded:
            return [(row, True) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: (-len(rows[i].tokens), i))
        mine = []
        for start in range(0, len(order), self.size):
            turn = order[start : start + self.size]
            forth = (start // self.size) % 2 == 0
            place = self.rank if forth else self.size - 1 - self.rank
            counts = place < len(turn)
            mine.append((rows[turn[place] if counts else order[-1]], counts))
        return mine

    def add(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over processes, float64 on the CPU."""
        if self.sharded:
            values = values.to(self.device)
            dist.all_reduce(values)
        return values.cpu()

    def greatest(self, value: float) -> float:
        """The greatest over processes."""
        if not self.sharded:
            return value
        held = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(held, dist.ReduceOp.MAX)
        return float(held)

    def tell(self, message: object = None) -> Any:
        """What the first process says, to all of them."""
        held = [message]
        dist.broadcast_object_list(held, src=0, group=self.control, device=torch.device("cpu"))
        return held[0]

    def collect(self, part: T, *, behind: bool = False) -> list[T]:
        """On the first process what each has; on the others nothing. In the background."""
        if not self.sharded:
            return [part]
        parts: list[Any] = [None] * self.size
        group = self.behind if behind else self.background
        dist.gather_object(part, None if self.rank else parts, dst=0, group=group)
        return [] if self.rank else parts

    def nearest(self, value: T | None) -> T:
        """The value that a process of this machine has, the lowest in rank."""
        machine = os.environ.get("GROUP_RANK", "0")
        held: list[Any] = [(machine, value)]
        if self.sharded:
            held *= self.size
            dist.all_gather_object(held, (machine, value), group=self.background)
        found: T = next(it for where, it in held if where == machine and it is not None)
        return found

    def agree(self, flag: bool) -> bool:
        """The flag of the first process, for all of them."""
        if not self.sharded:
            return flag
        held = torch.tensor([flag], dtype=torch.uint8)
        dist.broadcast(held, src=0, group=self.control)
        return bool(held)


def join(timeout_seconds: float, *, device: str = "auto", mesh_of_one: bool = False) -> Ranks:
    """Meets the other processes that torchrun started; alone when it started none.

    A collective of a step that takes longer than the timeout fails, and ends the process.
    `mesh_of_one` shards over a single process too, to try that on one GPU.

    Args:
        timeout_seconds: of a collective of a step.
        device: `cpu`, or `auto` and `cuda` for a GPU where there is one; see `gpu.refusal`.
        mesh_of_one: see above.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = device != "cpu" and torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    here = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(here)
    if size == 1 and not mesh_of_one:
        return Ranks(device=here)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout_seconds)
    )
    mesh = init_device_mesh(here.type, (size,))
    # Between steps the agents act, which takes what it takes; a lost peer is noticed at once
    # by its closed connection.
    control, background, behind = (
        dist.new_group(backend="gloo", timeout=timedelta(days=30)) for _ in range(3)
    )
    return Ranks(dist.get_rank(), size, here, mesh, control, background, behind)


def leave() -> None:
    """Says goodbye to the other processes."""
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(network: Network, ranks: Ranks, dtype: torch.dtype, *, trains: bool = True) -> None:
    """Shards every block of `network`, and what is around them; computes in `dtype`.

    Weights may be parts already, as `loading.load_parts` reads them. Of one that trains, what is
    around the blocks stays gathered from a forward pass to its backward pass.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    with _set_aside(network):
        for block in blocks(network):
            fully_shard(block, mesh=ranks.mesh, mp_policy=policy)
        fully_shard(
            network,
            mesh=ranks.mesh,
            mp_policy=policy,
            reshard_after_forward=None if trains else True,
        )
    register_fsdp_forward_method(network, "plain")


def let_go(network: Network) -> None:
    """Frees what a forward pass gathered for a backward pass that does not come."""
    assert isinstance(network, FSDPModule), "it is sharded"
    network.reshard()


@contextmanager
def _set_aside(network: Network) -> Iterator[None]:
    """Within the block what is a part already is a whole without memory, which FSDP can shard.

    Afterwards the parts are back; FSDP takes those that it finds at the first pass.
    """
    places = [
        (module, name, parameter)
        for module in network.modules()
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if isinstance(parameter, DTensor)
    ]
    # Tied weights are one object, before and within.
    empty = {
        parameter: torch.nn.Parameter(
            torch.empty(parameter.shape, dtype=parameter.dtype, device="meta"),
            requires_grad=parameter.requires_grad,
        )
        for _, _, parameter in places
    }
    for module, name, parameter in places:
        setattr(module, name, empty[parameter])
    yield
    for module, name, parameter in places:
        setattr(module, name, parameter)


def whole(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of the tensors, gathered where they are sharded, on the CPU; all must ask."""
    # A gathered tensor may be a view of a padded one, which safetensors refuses.
    return {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)
        .detach()
        .to("cpu", copy=True)
        for name, tensor in tensors.items()
    }


def owned(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, torch.Tensor]:
    """Copies of the tensors that this process stores for all, whole; all must ask.

    A layer's stay together: a model's files may hold several of them as one.
    """
    mine: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        layer = re.search(r"\.(\d+)\.", name)
        owner = int(layer[1]) % ranks.size if layer else ranks.size - 1
        if owner == ranks.rank:
            mine |= whole({name: tensor})
        elif isinstance(tensor, DTensor):
            tensor.full_tensor()
    return mine


@torch.no_grad()
def fill(target: torch.Tensor, value: torch.Tensor) -> None:
    """Writes a whole tensor into one that may be sharded.

    The first process's numbers count; the others' may be on the meta device.
    """
    if isinstance(target, DTensor):
        if value.is_meta:
            value = torch.empty_like(value, device=target.device)
        value = distribute_tensor(
            value.to(target.device, target.dtype), target.device_mesh, target.placements
        )
    target.copy_(value)
