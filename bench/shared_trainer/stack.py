"""Podium's services around one shared trainer; the inference pool alone is a double."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from podium import AsyncClient
from podium.sdk import Addresses

from bench.rollout.throughput import free_port, listens, start
from bench.shared_trainer.stub_pool import VOCABULARY

MAX_JOBS = 4
"""Slots of the trainer."""
_SERVICES = ("registry", "rollout", "judge", "trainer", "controller")


@dataclass(frozen=True)
class Tempo:
    """How fast the stub of the pool is."""

    token_ms: float
    median: float
    """Tokens of an answer."""
    knee: float
    """Sequences underway at which a token takes twice as long; 0 for a pool with room for all."""


@asynccontextmanager
async def services(
    folder: Path, model: Path, tempo: Tempo, at_once: int
) -> AsyncIterator[AsyncClient]:
    """Fresh ones. The controller lets `at_once` jobs have a slot of the trainer at a time."""
    ports = {name: free_port() for name in (*_SERVICES, "inference")}
    address = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    shared = {"address": address["trainer"], "max_jobs": at_once}
    own = {
        "registry": {},
        "rollout": {"INFERENCE_ADDRESS": address["inference"]},
        "judge": {"BASE_URL": "http://127.0.0.1:1/v1"},
        "trainer": {
            "REGISTRY_ADDRESS": address["registry"],
            "MAX_JOBS": str(MAX_JOBS),
            # Two cores and two threads: what else the machine does is in the other's way least.
            "THREADS": "1",
        },
        "controller": {
            **{
                f"{name.upper()}_ADDRESS": address[name]
                for name in ("registry", "inference", "rollout", "judge")
            },
            "TRAINER_ADDRESS": "",
            "TRAINER_POOLS": json.dumps({"shared": shared}),
            "MAX_ACTIVE_JOBS": str(MAX_JOBS),
            # A job that waits for a slot has it at once.
            "POLL_SECONDS": "0.1",
        },
    }
    pool = [str(ports["inference"]), str(model)]
    pool += [str(each) for each in (tempo.token_ms, tempo.median, tempo.knee)]
    processes = [start(["bench.shared_trainer.stub_pool", *pool], {})]
    for name in _SERVICES:
        settings = {
            "PORT": str(ports[name]),
            "HEALTH_PORT": "0",
            "METRICS_PORT": "0",
            "LOG_LEVEL": "ERROR",
            "DATA_DIR": str(folder / name),
            **own[name],
        }
        variables = {f"PODIUM_{name.upper()}_{key}": value for key, value in settings.items()}
        processes.append(start([f"podium_{name}"], variables))
    try:
        await asyncio.gather(*map(listens, ports.values()))
        addresses = Addresses(
            controller=address["controller"],
            registry=address["registry"],
            inference=address["inference"],
            rollout=address["rollout"],
            judge=address["judge"],
        )
        async with AsyncClient(addresses) as client:
            yield client
    finally:
        for process in processes:
            process.kill()
            process.wait()


def build_model(folder: Path, hidden: int, layers: int) -> Path:
    """A random Llama with the vocabulary of the stub."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
