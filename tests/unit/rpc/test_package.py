"""The package's front door."""

from __future__ import annotations

import podium.kit.rpc
import pytest


@pytest.mark.parametrize("name", podium.kit.rpc.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(podium.kit.rpc, name).__module__.startswith("podium.kit.rpc.")


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        podium.kit.rpc.nothing  # noqa: B018
