"""`--set KEY=VALUE`, and the like, of options that have no schema of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click


def read_settings(settings: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Values by key; each is YAML.

    Raises:
        click.BadParameter: one is no KEY=VALUE, or its value no YAML.
    """
    import yaml

    read: dict[str, Any] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint=option)
        try:
            read[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise click.BadParameter(f"{value!r} is not YAML", param_hint=option) from None
    return read
