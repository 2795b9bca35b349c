"""Each test is dealt to one worker, and to one that has collected it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.dealing import collected_elsewhere, rank
from support.pretended_workers import Worker, dealing, play

ROOT = Path(__file__).parents[3]
EVERYONES = [f"tests/unit/core/test_{name}.py::test_{n}" for name in "abc" for n in range(4)]
TENSORS = [f"tests/unit/trainer/test_blocks.py::test_{n}" for n in range(4)]


def test_each_test_runs_once_where_it_was_collected() -> None:
    found, workers, session = dealing([EVERYONES, EVERYONES + TENSORS])
    found.schedule()
    ran = play(found, workers)
    assert sorted(ran) == sorted(EVERYONES + TENSORS)
    assert all(worker.shutting_down for worker in workers)
    assert found.tests_finished
    assert session.testscollected == len(EVERYONES + TENSORS)


def test_one_that_takes_the_place_of_a_dead_worker_goes_on_with_what_that_one_alone_had() -> None:
    found, workers, _ = dealing([EVERYONES, EVERYONES + TENSORS])
    found.schedule()
    assert found.remove_node(workers[1]) in TENSORS
    ran = play(found, workers[:1])
    assert not set(ran) & set(TENSORS)
    replacement = Worker(2)
    found.add_node(replacement)
    found.add_node_collection(replacement, EVERYONES + TENSORS)
    found.schedule()
    assert sorted(ran + play(found, [replacement])) == sorted(EVERYONES + TENSORS)
    assert replacement.shutting_down


def test_workers_that_collect_differently_what_all_collect_run_nothing() -> None:
    found, workers, session = dealing([EVERYONES, EVERYONES[1:] + TENSORS])
    found.schedule()
    assert [worker.told for worker in workers] == [[], []]
    assert "Different tests were collected" in session.told[0].longrepr


def configured(worker: str | None, workers: int, *args: str) -> Any:
    config = SimpleNamespace(rootpath=ROOT, args=list(args) or [str(ROOT / "tests")])
    if worker:
        config.workerinput = {"workerid": worker, "workercount": workers}
    return config


@pytest.mark.parametrize("path", ["tests/unit/trainer", "tests/unit/trainer/test_blocks.py"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_one_worker_collects_what_needs_torch(path: str, workers: int) -> None:
    names = [f"gw{index}" for index in range(workers)]
    own = [n for n in names if not collected_elsewhere(ROOT / path, configured(n, workers))]
    assert len(own) == 1


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(configured(None, 0), id="no worker"),
        pytest.param(configured("gw2", 2), id="a dead worker's replacement"),
        pytest.param(configured("gw1", 2, "tests/unit/trainer/test_blocks.py"), id="a file"),
        pytest.param(configured("gw1", 2, "tests/unit/trainer::test_x"), id="a test"),
    ],
)
def test_all_is_collected_by(config: Any) -> None:
    assert not collected_elsewhere(ROOT / "tests/unit/trainer/test_blocks.py", config)


def test_what_is_everyones_is_collected_by_everyone() -> None:
    for worker in ("gw0", "gw1"):
        assert not collected_elsewhere(ROOT / "tests/unit", configured(worker, 2))
        assert not collected_elsewhere(Path(__file__), configured(worker, 2))


def test_the_longest_are_begun_first() -> None:
    names = ["tests/chart/test_a.py", "tests/unit/trainer/test_b.py", "tests/integration/test_c.py"]
    assert sorted(names, key=rank) == [names[2], names[1], names[0]]
