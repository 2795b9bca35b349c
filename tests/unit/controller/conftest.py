from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from podium_controller.cluster import trainers
from podium_controller.training import patient_ledger, recovery, useless
from support.spans import exporter, spans

__all__ = ["exporter", "spans"]


@pytest.fixture(scope="session", autouse=True)
def tried_again_soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_FIRST_PAUSE", 0.001)
        patch.setattr(patient_ledger, "_FIRST_PAUSE", 0.001)
        patch.setattr(useless, "_FIRST_PAUSE", 0.001)
        patch.setattr(trainers, "_FIRST_PAUSE", 0.01)
        yield


@pytest.fixture
def quiet() -> Iterator[None]:
    """What befalls a simulated job is logged thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
