"""Environments that jobs name, where they cannot be asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from podium.core.errors import UnavailableError
from podium.environments import Scenario, catalog
from podium.types.v1 import spec_pb2
from podium_rollout.adapters.environments import Environments
from support.wild_services import Echo


class Away(Echo):
    """Of another framework, whose server is gone."""

    def scenarios(self, split: str) -> Sequence[Scenario]:
        raise UnavailableError("its server is gone")


@pytest.mark.parametrize("address", ["", "127.0.0.1:9"])
async def test_one_that_is_away_is_told_from_a_rollout_service_that_is(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setitem(catalog._BUILTIN, "away", f"{__name__}:Away")
    environments = Environments()
    spec = spec_pb2.EnvironmentSpec(name="away", address=address)
    with pytest.raises(UnavailableError) as caught:
        await environments.scenarios(spec, "train", 10, "")
    await environments.close()
    assert caught.value.reason == "ENVIRONMENT_UNAVAILABLE"
    words = f"environment 'away' at {address}" if address else "its server is gone"
    assert words in caught.value.message
