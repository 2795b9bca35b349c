"""Settings of the trainer, from the environment (`PODIUM_TRAINER_…`)."""

from __future__ import annotations

from typing import Literal

from podium.kit.rpc import ServerSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_TRAINER_")

    port: int = Field(50056, ge=0, le=65535)
    health_port: int = Field(50066, ge=0, le=65535)
    metrics_port: int = Field(50076, ge=0, le=65535)

    registry_address: str = "127.0.0.1:50052"
    """Where checkpoints go."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` is a GPU where torch can use one, and else the CPU; `cuda` is a GPU or no start."""
    threads: int = Field(default=0, ge=0)
    """Threads of one matrix product; 0 for one a core."""
    max_jobs: int = Field(default=1, ge=1)
    """Jobs that may be open at once. More than one train adapters on one base model, which is
    in memory once; with several processes there can be but one."""
    idle_seconds: float = Field(default=600.0, ge=0)
    """How long a job without a call stays in memory, where several may be open; its next call
    has it back from the registry. 0 for as long as it is open."""
    row_tokens: int = Field(default=2048, ge=16)
    """Tokens of a packed row, unless a trajectory needs more or the job allows fewer.
    Memory grows with it; larger rows share more prefixes."""
    bfloat16: Literal["auto", "native"] = "auto"
    """`auto` computes bfloat16 jobs in float32 on a CPU."""
    products: Literal["torch", "onednn", "bfloat16"] = "torch"
    """How a CPU multiplies by weights that do not train: see `learner.products`."""
    tf32: bool = False
    """Multiply float32 matrices in TF32, on GPUs that have it."""
    collective_timeout_seconds: float = Field(default=600.0, gt=0)
    """How long the processes of one trainer wait for each other within a step."""
    attention: Literal["", "podium_segments", "podium_dense", "podium_flex"] = ""
    """How a packed row attends; empty for the device's: `podium_segments` computes only what
    the prefix tree has, on the CPU; `podium_flex` is FlexAttention over its blocks, on a GPU;
    `podium_dense` masks one product."""
