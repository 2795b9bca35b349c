"""An adapter merged into its base model's weights. Imports torch."""

from __future__ import annotations

import shutil
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from podium.core.errors import FailedPreconditionError
from podium.core.packages import needed
from podium.local.models import INDEX, check_whole, digest, resolve, tensors_of
from podium.local.models.merging import copy_beside, merged_tensors
from podium.registry.v1 import registry_service_pb2 as pb


def merge(manifest: pb.Manifest, adapter: Path, target: Path) -> None:
    """Writes base + delta to `target`, each tensor in its type in the base model's files.

    In these files' names, with all that lies beside them. The delta (alpha / rank) B A is added
    in float32 and the sum rounded once.

    Raises:
        FailedPreconditionError: the base model here is not the one that the
            adapter was trained on, or a package is missing.
        NotFoundError: the base model is not here.
    """
    base = resolve(manifest.base_model)
    if manifest.base_model_digest and digest(base) != manifest.base_model_digest:
        raise FailedPreconditionError(
            f"{manifest.base_model} here differs from the one that "
            f"{manifest.model}@{manifest.version} was trained on",
            reason="BASE_MODEL_MISMATCH",
        )
    torch = needed("torch", "podium[trainer]", "--merged")
    save_file = needed("safetensors.torch", "podium[trainer]", "--merged").save_file
    check_whole(base)
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16}
    types["BF16"] = torch.bfloat16
    stored = tensors_of(base)
    target.mkdir(parents=True, exist_ok=True)
    copy_beside(base, target)
    if (base / INDEX).is_file():
        shutil.copyfile(base / INDEX, target / INDEX)
    for file, tensors in groupby(merged_tensors(base, adapter), itemgetter(0)):
        held = {
            name: tensor.to(types[stored[name].dtype]) if changed else tensor
            for _, name, tensor, changed in tensors
        }
        save_file(held, target / file.name, metadata={"format": "pt"})
