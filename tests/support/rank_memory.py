"""What full fine-tuning takes of each process, and what becomes of a state on other numbers.

    python -m support.rank_memory FOLDER

makes a model in FOLDER, trains it by one process and by four, goes on from what the four made by
four, two and one, and from what the one made by four; and writes what it saw to FOLDER/seen.json.
"""

from __future__ import annotations

import gc
import hashlib
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from podium.types.v1 import spec_pb2
from podium_trainer.learner.base import load_network
from podium_trainer.learner.checkpoint import read, write
from podium_trainer.learner.parallel import Ranks, whole
from podium_trainer.learner.session import Compute, JobConfig, Session
from podium_trainer.learner.sharded import Shards
from safetensors.torch import load_file, save_file
from support.forked_ranks import forked
from support.loaded_parts import differences, refusals
from support.storages import Storages
from support.tiny_policy import build_small_llama, step_groups, training_spec

RANKS = 4
SHAPE = {
    "vocab_size": 3072,
    "hidden_size": 192,
    "intermediate_size": 768,
    "num_hidden_layers": 18,
    "initializer_range": 0.05,
}
LAYER = 4 * 3072 * 192
"""The bytes of the embedding, 2.4 of 42 MB; a layer is a little less."""


def opened(ranks: Ranks, model: Path, version: Path | None = None) -> Session:
    """A job on the model, from the start or from a version's files."""
    training = training_spec(
        trainable=spec_pb2.TRAINABLE_KIND_FULL,
        dtype=spec_pb2.COMPUTE_DTYPE_FLOAT32,
        learning_rate=1e-3,
        loss={"kl_coefficient": 0.05},
        # What a layer keeps for its backward pass is not what is to be seen.
        gradient_checkpointing=True,
    )
    config = JobConfig("job", "model", training, seed=5)
    checkpoint = None if version is None else read(version)
    return Session(config, model, "sha256:0", Compute(row_tokens=110), checkpoint, ranks)


def step(session: Session) -> dict[str, float]:
    """Takes the next one."""
    groups = step_groups(session.step + 1, groups=6, length=28)
    return session.train(groups, lambda: False).metrics


def save(session: Session, ranks: Ranks, model: Path, version: Path) -> None:
    """Writes a version as the processes' files come together in a registry."""
    checkpoint = session.checkpoint()
    part = version.with_name(f"{version.name}, part{ranks.mark}")
    for path, file in write(checkpoint, model, part, ranks).items():
        (version / path).parent.mkdir(parents=True, exist_ok=True)
        (version / path).hardlink_to(file)
    assert isinstance(checkpoint.shards, Shards)
    checkpoint.shards.close()
    meet(ranks)


def meet(ranks: Ranks) -> None:
    """Returns when all processes are here."""
    if ranks.sharded:
        dist.barrier(ranks.control)


def state(session: Session) -> dict[str, torch.Tensor]:
    """Masters, moments and counts, whole, in every process."""
    return whole(session._shards())


def digests(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """Of every tensor."""
    return {
        name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }


def measured(ranks: Ranks, model: Path, folder: Path) -> dict[str, Any]:
    """The bytes of tensors at the end and at most, by what was done; and what `state` is then."""
    peaks: dict[str, int] = {}
    with Storages() as storages:

        def end(name: str) -> None:
            gc.collect()
            peaks[name], peaks[f"after {name}"] = storages.peak, storages.held
            storages.begin()

        network = load_network(model, torch.float32, "", ranks.device, ranks.mesh)
        for parameter in network.parameters():
            # What another thread read is seen when something is done with it.
            parameter.detach()
        end("load")
        del network
        end("nothing")
        session = opened(ranks, model)
        end("start")
        step(session)
        end("first step")
        step(session)
        end("step")
        save(session, ranks, model, folder / "2 steps")
        end("save")
        del session
        end("close")
        session = opened(ranks, model, folder / "2 steps")
        end("resume")
    step(session)
    kept(session, ranks, folder / "went on")
    return {"bytes": peaks, "most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def moved(ranks: Ranks, model: Path, folder: Path, version: str, into: str = "") -> dict[str, str]:
    """What a resume from `version` holds; with `into`, takes a step and saves that."""
    session = opened(ranks, model, folder / version)
    held = digests(state(session))
    if into:
        step(session)
        kept(session, ranks, folder / into)
        save(session, ranks, model, folder / f"{into}, saved")
    return held


def kept(session: Session, ranks: Ranks, file: Path) -> None:
    """Writes the state, whole."""
    whole_state = state(session)
    if ranks.rank == 0:
        save_file(whole_state, file)


def stored(_: Ranks, folder: Path, names: Sequence[str]) -> list[dict[str, str]]:
    """Digests of what `kept` wrote."""
    return [digests(load_file(folder / name)) for name in names]


def apart(_: Ranks, one: Path, two: Path) -> dict[str, float]:
    """The greatest difference of two states, by kind."""
    first, second = load_file(one), load_file(two)
    seen: dict[str, float] = {}
    for kind in ("weights", "optimizer"):
        names = [name for name in first if name.startswith(kind)]
        seen[kind] = max(float((first[name] - second[name]).abs().max()) for name in names)
    return seen


def main(folder: Path) -> None:
    """See the module's description."""
    (model,) = forked(1, built, folder / "model")
    (folder / "alone").mkdir()
    seen: dict[str, Any] = {
        "ranks": forked(RANKS, measured, model, folder),
        "alone": forked(1, measured, model, folder / "alone"),
        "parts": forked(3, differences, folder),
        "refused": forked(3, refusals, folder),
    }
    for size in (4, 2, 1):
        seen[f"4 to {size}"] = forked(size, moved, model, folder, "2 steps", f"by {size}")[0]
        seen[f"4 to {size}, apart"] = forked(1, apart, folder / "went on", folder / f"by {size}")[0]
    seen["2 to 1"] = forked(1, moved, model, folder, "by 2, saved")[0]
    seen["1 to 4"] = forked(4, moved, model, folder, "by 1, saved")[0]
    (seen["stored"],) = forked(1, stored, folder, ["by 2", "by 1"])
    (folder / "seen.json").write_text(json.dumps(seen))


def built(_: Ranks, folder: Path) -> Path:
    """The model, made by a process of its own."""
    return build_small_llama(folder, **SHAPE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
