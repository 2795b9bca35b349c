"""The hub's client of this process, with another hub than the one it found as it was imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants


@contextmanager
def hub_at(endpoint: str, folder: Path) -> Iterator[None]:
    """As with HF_ENDPOINT, HF_HUB_OFFLINE=0, and HF_HOME in `folder`, which are read only once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", endpoint)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
        patch.setattr(constants, "HF_STORED_TOKENS_PATH", str(folder / "stored_tokens"))
        # Its own store of large files is none of the protocol that others speak.
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setenv("NO_PROXY", "127.0.0.1")
        huggingface_hub.close_session()
        yield
        huggingface_hub.close_session()
