"""Base models on disk: a name becomes a folder that Transformers and vLLM load.

Light: nothing here imports torch or Transformers. `python -m
podium.models.prepare NAME` fills the folder once.
"""

from __future__ import annotations

from podium.models.digest import digest
from podium.models.locate import HUB_NAMES, known, models_dir, resolve
from podium.models.recipe import BUILT_IN

__all__ = ["BUILT_IN", "HUB_NAMES", "digest", "known", "models_dir", "resolve"]
