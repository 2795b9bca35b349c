"""Four processes train all weights: none holds the model, and others go on where they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from support.rank_memory import LAYER, RANKS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the processes wrote."""
    folder = tmp_path_factory.mktemp("ranks")
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "support.rank_memory", str(folder)],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            stdout=log,
            stderr=log,
            check=False,
        )
    assert done.returncode == 0, (folder / "log").read_text()[-4000:]
    return folder


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return result


@pytest.fixture(scope="module")
def quarter(folder: Path) -> float:
    """Of the bytes of all weights."""
    with safe_open(folder / "model" / "model.safetensors", framework="pt") as file:
        names = list(file.keys())
        return float(sum(file.get_tensor(name).nbytes for name in names) / RANKS)


def test_no_process_holds_the_model_at_any_time(seen: dict[str, Any], quarter: float) -> None:
    """Layers are what is gathered, and a layer's gradient, of which few are there at once.

    With the reference of the KL there are two models. What is saved is a copy of the masters and
    the moments, and of the weights that are served.
    """
    assert quarter > 4 * LAYER
    for rank in seen["ranks"]:
        held = rank["bytes"]
        assert held["load"] <= quarter + LAYER
        assert held["after load"] <= 1.01 * quarter
        assert held["start"] <= 2 * quarter + 5 * LAYER
        assert held["after start"] <= 2.02 * quarter
        assert held["step"] <= (2 + 1 + 2) * quarter + 8 * LAYER
        assert held["after step"] <= (2 + 2) * 1.01 * quarter
        assert held["save"] <= (2 + 2) * quarter + (3 + 1) * quarter + 2 * LAYER
        assert held["after save"] <= (2 + 2) * 1.01 * quarter
        assert held["resume"] <= (2 + 2) * quarter + 5 * LAYER


@pytest.mark.parametrize(
    ("phase", "layers"),
    [("load", 1), ("after load", 0), ("step", 7), ("after step", 0), ("save", 1)],
)
def test_each_of_four_takes_a_quarter_of_what_one_takes(
    seen: dict[str, Any], phase: str, layers: int
) -> None:
    """And the layers that are gathered at once: in a step those of two models, and gradients.

    Of the small model here they are a quarter more at the step's peak; of a large one, little. What
    opening takes is not compared: a process alone maps its files, of which nothing is counted.
    """
    (alone,) = seen["alone"]
    for rank in seen["ranks"]:
        allowed = 1.01 * alone["bytes"][phase] / RANKS + layers * LAYER
        assert rank["bytes"][phase] <= allowed


def test_parts_are_the_model_that_one_process_reads(seen: dict[str, Any]) -> None:
    """By three processes: nothing divides by them evenly, and of four experts the last has none."""
    assert seen["parts"] == [[], [], []]


def test_a_model_that_cannot_be_cut_is_refused_by_all(seen: dict[str, Any]) -> None:
    first, *others = seen["refused"]
    assert others == [first, first]
    larger, pickled = first
    assert "(97, 64) in the files, not (98, 64)" in larger
    assert "its weights are pickles" in pickled


@pytest.mark.parametrize("size", [4, 2, 1])
def test_what_four_saved_goes_on_by_another_number(seen: dict[str, Any], size: int) -> None:
    """By four to the last bit. By others sums of gradients are in another order: seen were
    1.5e-8 in a weight, which are 1 at most, and 5e-10 in a moment."""
    assert seen[f"4 to {size}"] == seen["4 to 4"]
    apart = seen[f"4 to {size}, apart"]
    assert apart["weights"] <= (0 if size == RANKS else 1e-6)
    assert apart["optimizer"] <= (0 if size == RANKS else 1e-8)


@pytest.mark.parametrize(("moved", "place"), [("2 to 1", 0), ("1 to 4", 1)])
def test_what_others_saved_is_read_to_the_last_bit(
    seen: dict[str, Any], moved: str, place: int
) -> None:
    assert seen[moved] == seen["stored"][place]
    assert seen[moved].keys() == seen["4 to 4"].keys()
    assert seen[moved] != seen["4 to 4"]
