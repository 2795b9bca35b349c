"""Base models on disk: a name becomes a folder that Transformers and vLLM load.

Light: nothing here imports torch or Transformers. `python -m
podium.local.models.prepare NAME` fills the folder once.
"""

from __future__ import annotations

from podium.local.models.digest import digest
from podium.local.models.locate import HUB_NAMES, known, models_dir, resolve
from podium.local.models.recipe import BUILT_IN

__all__ = ["BUILT_IN", "HUB_NAMES", "digest", "known", "models_dir", "resolve"]
