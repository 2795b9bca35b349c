"""An adapter merged into its base model's weights. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podium.core.errors import FailedPreconditionError
from podium.local.models import check_whole, digest, resolve
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
    check_whole(base)
    # It would ask at the terminal whether to run code of the model's.
    own: dict[str, Any] = {"trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **own)
    merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    dtype = AutoConfig.from_pretrained(base, **own).dtype or torch.float32
    merged.to(dtype).save_pretrained(target)
    AutoTokenizer.from_pretrained(base, **own).save_pretrained(target)
