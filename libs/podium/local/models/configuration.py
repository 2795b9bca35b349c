"""A model's `config.json`: as it is, and with what its class adds. Light: Transformers on use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation


def config_of(folder: Path) -> dict[str, Any]:
    """What the model's `config.json` holds.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: it is no JSON object.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unsupported(folder, f"config.json cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise unsupported(folder, "config.json holds no JSON object")
    return config


def whole_config(folder: Path) -> dict[str, Any]:
    """The same of the part for text, with what the model's class takes where the file is silent.

    Tied embeddings, a head's size, a window of attention: each class has defaults of its own.
    Loads Transformers.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: it is of no kind that the installed Transformers
            has, or holds what its class refuses.
    """
    from transformers import AutoConfig

    config_of(folder)
    try:
        made = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        # Each class looks at its own values, and raises what it likes.
        text = f"Transformers cannot read its config.json: {type(error).__name__}: {error}"
        raise unsupported(folder, text) from error
    found: dict[str, Any] = made.get_text_config().to_dict()
    return found


def unsupported(name: object, why: str) -> InvalidArgumentError:
    """The error for a model that is not taken as it is."""
    return InvalidArgumentError(
        violations=[Violation("base_model", f"got {str(name)!r}: {why}")],
        reason="UNSUPPORTED_MODEL",
    )
