"""How tests are dealt to workers (`pytest -n 2`), and which of them collects what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Each of these shares an engine, a stack, a trainer's memory or torch with its neighbours: all of
# one kind go to one worker.
_TOGETHER = {
    "tests/integration/spine/": "stacks",
    "tests/integration/test_tutorial_demo": "stacks",
    "tests/integration/inference/": "pools",
    "tests/integration/trainer/": "trainers",
    "tests/integration/test_trainer_": "trainers",
    "tests/integration/test_sft_resume": "trainers",
    "tests/integration/test_bench_gpu": "trainers",
    "tests/unit/trainer/": "tensors",
    "tests/unit/inference/": "tensors",
    "tests/unit/deltas/": "tensors",
    "tests/unit/controller/test_trainable_groups": "tensors",
    "tests/unit/repository/test_left_behind": "tensors",
}
# No other worker collects them: torch and what these need besides take ten seconds to import.
_COLLECTED_BY = {"stacks": 0, "pools": 1, "trainers": 2, "tensors": 2}
# Each of these has a namespace of a cluster to itself, and mostly waits for that cluster.
_APART = "tests/integration/test_controller_cluster"
# What is begun first, so that no worker is left with a long one in the end.
_LONGEST_FIRST = (
    "tests/integration/spine/",
    "tests/integration/test_tutorial_demo",
    "tests/integration/inference/",
    "tests/integration/trainer/",
    "tests/integration/test_trainer_",
    "tests/integration/test_bench_gpu",
    "tests/integration/test_controller_recovery",
    "tests/integration/test_registry_",
    "tests/integration/test_controller_",
    "tests/integration/",
    "tests/unit/trainer/",
)


def collected_elsewhere(path: Path, config: pytest.Config) -> bool:
    """Whether this process is a worker, and what is at `path` another worker's.

    A file that the command line names is everyone's, and so is all to a worker that takes the
    place of one that died.
    """
    worker: dict[str, object] | None = getattr(config, "workerinput", None)
    if worker is None or not all(Path(argument).is_dir() for argument in config.args):
        return False
    index, workers = (
        int(str(worker["workerid"]).removeprefix("gw")),
        int(str(worker["workercount"])),
    )
    kind = _kind(path.relative_to(config.rootpath).as_posix() + "/" * path.is_dir())
    return kind is not None and index < workers and _COLLECTED_BY[kind] % workers != index


def rank(nodeid: str) -> int:
    """Its place among what is begun first."""
    ranks = (rank for rank, start in enumerate(_LONGEST_FIRST) if nodeid.startswith(start))
    return next(ranks, len(_LONGEST_FIRST))


def _kind(nodeid: str) -> str | None:
    return next((kind for start, kind in _TOGETHER.items() if nodeid.startswith(start)), None)


class Dealing(LoadFileScheduling):
    """Deals each file to a worker that has collected it."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._places: dict[WorkerController, dict[str, int]] = {}

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_APART):
            return nodeid
        return _kind(nodeid) or str(super()._split_scope(nodeid))

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        self.registered_collections[node] = list(collection)
        self._places[node] = {nodeid: place for place, nodeid in enumerate(collection)}

    def schedule(self) -> None:
        if self.collection is None:
            if not self._agreed():
                return
            collected = chain.from_iterable(self.registered_collections.values())
            self.collection = sorted(dict.fromkeys(collected), key=rank)
            for nodeid in self.collection:
                self.workqueue.setdefault(self._split_scope(nodeid), {})[nodeid] = False
            session = self.config.pluginmanager.get_plugin("session")
            assert session is not None
            # xdist has put there what the last worker collected.
            session.testscollected = len(self.collection)
        # Two for each, so that a worker knows what comes next.
        for node in self.nodes * 2:
            self._reschedule(node)

    def _agreed(self) -> bool:
        """Whether all have collected the same of what all collect; xdist tells where not."""
        collected = self.registered_collections
        self.registered_collections = {
            node: [nodeid for nodeid in nodeids if _kind(nodeid) is None]
            for node, nodeids in collected.items()
        }
        agreed = self._check_nodes_have_same_collection()
        self.registered_collections = collected
        return bool(agreed)

    def _reschedule(self, node: WorkerController) -> None:
        places = self._places.get(node)
        if places is None or node.shutting_down or self._pending_of(self.assigned_work[node]) > 2:
            return
        for scope, unit in self.workqueue.items():
            if unit.keys() <= places.keys():
                del self.workqueue[scope]
                self.assigned_work[node][scope] = unit
                node.send_runtest_some([places[nodeid] for nodeid in unit if not unit[nodeid]])
                return
        node.shutdown()
