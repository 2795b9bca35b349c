"""An adapter merged into its base model's weights. Imports torch."""

from __future__ import annotations

from pathlib import Path

from podium.core.errors import FailedPreconditionError
from podium.local.models import digest, resolve
from podium.registry.v1 import registry_service_pb2 as pb


def merge(manifest: pb.Manifest, adapter: Path, target: Path) -> None:
    """Writes base + delta to `target` in the base model's dtype, with its tokenizer.

    The delta (alpha / rank) B A is added in float32 and the sum rounded once.

    Raises:
        FailedPreconditionError: the base model here is not the one that the
            adapter was trained on.
        NotFoundError: the base model is not here.
    """
    base = resolve(manifest.base_model)
    if manifest.base_model_digest and digest(base) != manifest.base_model_digest:
        raise FailedPreconditionError(
            f"{manifest.base_model} here differs from the one that "
            f"{manifest.model}@{manifest.version} was trained on",
            reason="BASE_MODEL_MISMATCH",
        )
    try:
        import torch
        from peft import PeftModel
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise FailedPreconditionError(
            f"--merged needs {error.name}; install podium[trainer], or export without --merged"
        ) from error
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    merged.to(AutoConfig.from_pretrained(base).dtype or torch.float32).save_pretrained(target)
    AutoTokenizer.from_pretrained(base).save_pretrained(target)
