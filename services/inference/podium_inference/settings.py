"""Settings of the inference service, from the environment (`PODIUM_INFERENCE_…`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from podium.core.tool_formats import FORMATS
from podium.kit.rpc import ServerSettings
from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_INFERENCE_")

    port: int = Field(default=50053, ge=0, le=65535)
    health_port: int = Field(default=50063, ge=0, le=65535)
    metrics_port: int = Field(default=50073, ge=0, le=65535)
    http_port: int = Field(default=50083, ge=1, le=65535)
    """Port of the OpenAI HTTP API."""
    api_keys_file: Path | None = None
    """Keys that agents may present there and nowhere else, one a line, besides the tokens of
    `auth_tokens_file`; read again when it changes."""

    model: str = "smollm2-135m-instruct"
    """Base model: a name that `podium.local.models` knows, or a folder."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Compute type of the engine. `auto` is bfloat16, and float32 on a CPU."""
    weight_mode: Literal["auto", "merged", "adapter"] = "auto"
    """`merged`: one job a pool, no LoRA overhead; `adapter`: many jobs share the pool. `auto` is
    `adapter`, and `merged` on a CPU."""
    max_model_len: int = Field(default=2048, ge=16)
    """Tokens that prompt and answer may have together."""
    max_num_seqs: int = Field(default=0, ge=0)
    """Sequences that the engine runs at once; 0 for as many as vLLM's own server runs on a GPU of
    that memory, and 64 on a CPU."""
    max_waiting: int = Field(default=4096, ge=0)
    """Requests beyond those; more are refused with RESOURCE_EXHAUSTED."""
    kv_cache_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Memory for keys and values on the CPU; a GPU takes what is left."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory that the engine takes."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs over which each layer is split."""
    pipeline_parallel_size: int = Field(default=1, ge=1)
    """Parts of the model's layers, one after the other; each takes `tensor_parallel_size` GPUs."""
    nodes: int = Field(default=1, ge=1, le=64)
    """Nodes over which the engine is spread, each a process of this service."""
    node_rank: int = Field(default=0, ge=0)
    """Which of them this is; 0 leads and serves, the others work for it."""
    leader_address: str = ""
    """Host of node 0, where there are several."""
    group_port: int = Field(default=50093, ge=1, le=65535)
    """Port of node 0 at which the others meet it."""
    group_timeout_seconds: float = Field(default=1800.0, gt=0)
    """How long the nodes wait for each other before the engine starts."""
    enforce_eager: Literal["auto"] | bool = "auto"
    """Whether to skip compilation, which saves minutes at the start and costs speed on a GPU.
    `auto` skips it on a CPU alone."""
    max_loras: int = Field(default=4, ge=1, le=64)
    """Adapters in one batch, in adapter mode."""
    max_lora_rank: int = Field(default=64, ge=1, le=512)
    """Greatest rank of an adapter, in adapter mode."""
    tool_format: str = "auto"
    """How the model writes tool calls, one of `tool_formats.FORMATS`. `auto`: as its chat template
    shows; `text`: not at all."""
    reasoning_parser: Literal[
        "",
        "deepseek_r1",
        "deepseek_v3",
        "glm45",
        "kimi_k2",
        "minimax_m2",
        "mistral",
        "nemotron_v3",
        "olmo3",
        "openai_gptoss",
        "qwen3",
        "seed_oss",
    ] = ""
    """How the model writes what it thinks before it answers, by vLLM's names; empty: thoughts, if
    there are any, are a part of the answer."""
    chat_template: str = ""
    """A file with the Jinja template to use in place of the model's own, or the template itself."""
    tool_parser: str = ""
    """vLLM's tool-call parser for the OpenAI API; empty for that of the model's format of calls."""
    capture_max_calls: int = Field(default=100_000, ge=1)
    """Calls of rollouts that are kept until they are taken."""
    capture_max_tokens: int = Field(default=50_000_000, ge=1)
    """Their tokens together; a token takes up to 8 bytes."""
    capture_seconds: float = Field(default=3600.0, gt=0)
    """How long after a rollout's last call its calls are kept."""
    seed: int = Field(default=0, ge=0)
    """Of draws without a seed of their own."""

    registry_address: str = "127.0.0.1:50052"
    """Where versions come from."""
    pool_address: str = ""
    """`host:port`, whose name has the addresses of all pods of the pool; empty for one pod."""
    pod_ip: str = ""
    """This pod's address among them."""
    data_dir: Path = Path(".podium/inference")
    """Fetched versions, while they are served."""
    load_timeout_seconds: float = Field(default=300.0, gt=0)
    """For fetching a version, and for running generations to end."""

    @field_validator("tool_format")
    @classmethod
    def _check_format(cls, value: str) -> str:
        if value not in (allowed := ("auto", *sorted(FORMATS))):
            raise ValueError(f"got {value!r}; allowed are {', '.join(allowed)}")
        return value

    @field_validator("chat_template")
    @classmethod
    def _read_template(cls, value: str) -> str:
        if not value or "{" in value:
            return value
        try:
            return Path(value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"got {value!r}, which is no template and no file: {error}") from error

    @model_validator(mode="after")
    def _check_nodes(self) -> Self:
        world = self.tensor_parallel_size * self.pipeline_parallel_size
        if world % self.nodes:
            raise ValueError(
                f"nodes: got {self.nodes}; must divide tensor_parallel_size times"
                f" pipeline_parallel_size, which is {world}"
            )
        if self.node_rank >= self.nodes:
            raise ValueError(f"node_rank: got {self.node_rank}; allowed are 0 to {self.nodes - 1}")
        if self.nodes > 1 and not self.leader_address:
            raise ValueError(
                "leader_address: is empty; with nodes above 1 it must be node 0's host"
            )
        return self
