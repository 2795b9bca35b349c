"""A tiny model in the real inference service, adapters for it, and what Transformers says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import torch
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.registry_client import RegistryClient
from podium.local.launcher import Launcher
from podium.local.models import digest
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import policy_pb2, spec_pb2
from safetensors.torch import save

RANK = 4
OF_THE_VARIABLE = "of-the-variable"
"""A key that a pool with a token takes from vLLM's own variable."""


def adapter_files(
    model: Path, seed: int, *, scale: float = 0.2, rank: int = RANK
) -> dict[str, bytes]:
    """A random LoRA in PEFT's layout, for two projections of each of two layers."""
    config = json.loads((model / "config.json").read_text())
    hidden, middle = config["hidden_size"], config["intermediate_size"]
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, into, out in (
            ("self_attn.q_proj", hidden, config["num_attention_heads"] * config["head_dim"]),
            ("mlp.down_proj", middle, hidden),
        ):
            key = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(rank, into, generator=generator) * scale
            tensors[f"{key}.lora_B.weight"] = torch.randn(out, rank, generator=generator) * scale
    peft = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "down_proj"],
        "bias": "none",
        "base_model_name_or_path": str(model),
    }
    return {
        "adapter/adapter_config.json": json.dumps(peft).encode(),
        "adapter/adapter_model.safetensors": save(tensors),
    }


@dataclass
class TinyPool:
    """A stack of registry and inference that serves `model`."""

    stack: Launcher
    model: Path
    channel: grpc.aio.Channel
    registry: RegistryClient
    token: str = ""
    """What its callers must present; empty where anybody may call."""

    @property
    def stub(self) -> pb_grpc.InferenceServiceStub:
        """The inference service."""
        return pb_grpc.InferenceServiceStub(self.channel)

    async def publish(
        self,
        job: str,
        version: int,
        files: Mapping[str, bytes | Path],
        base_digest: str = "",
        kind: registry_pb.VersionKind.ValueType = registry_pb.VERSION_KIND_ADAPTER,
    ) -> None:
        """Makes a version of these files."""
        manifest = registry_pb.Manifest(
            model=job,
            version=version,
            kind=kind,
            base_model=self.model.name,
            base_model_digest=base_digest or digest(self.model),
        )
        await self.registry.push(files, manifest)

    async def load(
        self, job: str, version: int, *, in_flight: bool = False
    ) -> pb.LoadPolicyResponse:
        """LoadPolicy."""
        update = spec_pb2.WEIGHT_UPDATE_IN_FLIGHT if in_flight else spec_pb2.WEIGHT_UPDATE_DRAIN
        request = pb.LoadPolicyRequest(job=job, version=version, weight_update=update)
        return await self.stub.LoadPolicy(request, timeout=60)

    async def generate(
        self,
        prompt: Sequence[int],
        *,
        job: str = "",
        version: int | None = None,
        **sampling: Any,
    ) -> pb.Generation:
        """Generate."""
        reply = await self.stub.Generate(request(prompt, job, version, **sampling), timeout=240)
        return reply.generation


def request(
    prompt: Sequence[int], job: str = "", version: int | None = None, **sampling: Any
) -> pb.GenerateRequest:
    """What `TinyPool.generate` sends."""
    return pb.GenerateRequest(
        policy=policy_pb2.PolicyRef(job=job, version=version),
        prompt_token_ids=prompt,
        sampling=policy_pb2.SamplingParams(**{"max_tokens": 8, "temperature": 1.0, **sampling}),
    )


def reference_logprobs(
    model: Path,
    adapter: dict[str, bytes] | None,
    prompt: Sequence[int],
    sampled: Sequence[int],
    temperature: float,
    folder: Path,
) -> list[float]:
    """Log-probs of `sampled` after `prompt`, by Transformers and PEFT in float32, in nats."""
    causal = reference_model(model, adapter, folder)
    return logprobs_by(causal, prompt, sampled, temperature)


def reference_model(model: Path, adapter: dict[str, bytes] | None, folder: Path) -> Any:
    """Transformers' model in float32, with PEFT's adapter, whose files go into `folder`."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    causal = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter is not None:
        for name, content in adapter.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        causal = PeftModel.from_pretrained(causal, folder / "adapter")
    return causal


def logprobs_by(
    causal: Any, prompt: Sequence[int], sampled: Sequence[int], temperature: float
) -> list[float]:
    """Log-probs of `sampled` after `prompt`, by a model of `reference_model`, in nats."""
    with torch.no_grad():
        logits = causal(torch.tensor([[*prompt, *sampled]])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    return logprobs.gather(1, torch.tensor(sampled)[:, None])[:, 0].tolist()
