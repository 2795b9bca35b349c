"""The parts that take whole steps: a session, its resume, and the same sharded over one process."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import torch
from podium.types.v1 import spec_pb2
from podium_trainer.learner.checkpoint import Checkpoint
from podium_trainer.learner.parallel import Ranks, join, leave, whole
from podium_trainer.learner.session import Compute, JobConfig, Session
from podium_trainer.learner.sharded import Shards

from bench.gpu.measure import relative_of_all
from bench.gpu.part import Found
from bench.gpu.shapes import groups, model_folder, training

STEPS = 3
RESUMED = 1e-3
"""Of the norm of what a step moves: sums by atomics come in any order on a GPU."""
SHARDED = 0.02
"""Of the norm of what the steps move: Adam divides by a gradient's own size, so that what bfloat16
rounds in the smallest moves as far as the largest."""


def session(found: Found) -> None:
    """Three steps of an adapter and of whole weights; each again from its second version."""
    for kind in ("lora", "full"):
        found.try_each(kind, _three_steps, found, kind)


def mesh(found: Found) -> None:
    """The same steps under FSDP2 with a mesh of one process, and NCCL on CUDA."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = join(60, mesh_of_one=True) if _on_cuda(found) else _on_the_cpu()
    found.put("mesh", {"sharded": ranks.sharded, "backend": torch.distributed.get_backend()})
    for kind in ("lora", "full"):
        found.try_each(kind, _mesh_against_none, found, kind, ranks)
    leave()


def _on_cuda(found: Found) -> bool:
    return found.device == "cuda"


def _on_the_cpu() -> Ranks:
    # A machine with a GPU too, where the CPU was asked for.
    if not torch.cuda.is_available():
        return join(60, mesh_of_one=True)
    raise RuntimeError("a mesh takes the GPU where there is one")


def _spec(kind: str) -> spec_pb2.TrainingSpec:
    # The reference pass comes first: with an adapter, one without it.
    return training(full=kind == "full", learning_rate=1e-3, loss={"kl_coefficient": 0.05})


def _session(
    found: Found, kind: str, ranks: Ranks, checkpoint: Checkpoint | None = None
) -> Session:
    name = "tiny" if found.tiny else "qwen3-narrow"
    folder = model_folder(found.work, name, ranks.device)
    config = JobConfig(f"bench-{kind}", name, _spec(kind), 5)
    compute = Compute(row_tokens=110 if found.tiny else 4096, bfloat16="native")
    return Session(config, folder, "bench", compute, checkpoint, ranks)


def _groups(found: Found, step: int) -> Any:
    if found.tiny:
        return groups(step, 9, 12, 4, 509)
    return groups(step, 512, 256, 8, 32_003)


def _three_steps(found: Found, kind: str) -> None:
    ranks = Ranks(device=torch.device(found.device))
    told, kept, last = _train(found, kind, ranks, keep_at=STEPS - 1)
    found.put(f"{kind} steps", told)
    assert kept is not None
    # As a version that was published and fetched: adapters travel as tensors, whole weights as
    # the files of their shards.
    files = kept.shards.wait()[0].parent if isinstance(kept.shards, Shards) else None
    before = dict(kept.weights)
    resumed = _session(found, kind, ranks, replace(kept, shards=files) if files else kept)
    resumed.train(_groups(found, STEPS), lambda: False)
    if isinstance(kept.shards, Shards):
        kept.shards.close()
    again = _weights(resumed)
    found.put(
        f"{kind} resume bit for bit", all(torch.equal(again[name], last[name]) for name in last)
    )
    moved = {name: last[name] - before[name] for name in last}
    found.expect(
        f"{kind} resume",
        relative_of_all({name: again[name] - before[name] for name in last}, moved),
        RESUMED,
    )


def _train(
    found: Found, kind: str, ranks: Ranks, keep_at: int = 0
) -> tuple[list[dict[str, float]], Checkpoint | None, dict[str, torch.Tensor]]:
    """Numbers of the steps, the checkpoint of one of them, and the weights at the end."""
    one = _session(found, kind, ranks)
    told, kept = [], None
    for step in range(1, STEPS + 1):
        metrics = one.train(_groups(found, step), lambda: False).metrics
        names = ("loss", "grad_norm", "kl_reference", "tokens_trained", "rows")
        told.append(
            {name: metrics[name] for name in names}
            | {name: value for name, value in metrics.items() if name.startswith("seconds_")}
        )
        if step == keep_at:
            kept = one.checkpoint()
    return told, kept, _weights(one)


def _weights(one: Session) -> dict[str, torch.Tensor]:
    """The masters, whole, on the CPU."""
    return whole(one.policy.masters.weights)


def _mesh_against_none(found: Found, kind: str, ranks: Ranks) -> None:
    alone = Ranks(device=ranks.device)
    plain, _, expected = _train(found, kind, alone)
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
    sharded, _, got = _train(found, kind, ranks)
    found.put(f"{kind} steps", {"one process": plain, "mesh of one": sharded})
    start = _weights(_session(found, kind, alone))
    moved = {name: expected[name] - start[name] for name in expected}
    found.expect(
        f"{kind} mesh of one",
        relative_of_all({name: got[name] - start[name] for name in got}, moved),
        SHARDED,
    )
