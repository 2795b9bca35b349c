"""Base models on disk: a name becomes a folder that Transformers and vLLM load.

Light: nothing here imports torch or Transformers. `python -m
podium.local.models.prepare NAME` fills the folder once.
"""

from __future__ import annotations

from podium.local.models.configuration import config_of, unsupported, whole_config
from podium.local.models.digest import digest
from podium.local.models.locate import HUB_NAMES, known, models_dir, resolve
from podium.local.models.recipe import BUILT_IN
from podium.local.models.supported import (
    causal_kinds,
    check_whole,
    untrainable,
)
from podium.local.models.unread import unread
from podium.local.models.weights import (
    INDEX,
    StoredTensor,
    name_in_files,
    tensors_of,
    weight_files,
)

__all__ = [
    "BUILT_IN",
    "HUB_NAMES",
    "INDEX",
    "StoredTensor",
    "causal_kinds",
    "check_whole",
    "config_of",
    "digest",
    "known",
    "models_dir",
    "name_in_files",
    "resolve",
    "tensors_of",
    "unread",
    "unsupported",
    "untrainable",
    "weight_files",
    "whole_config",
]
