"""Workers of pytest-xdist that are told of tests, and run none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.dealing import Dealing


class Worker:
    """One that says that it ran each test at once."""

    def __init__(self, index: int) -> None:
        self.shutting_down = False
        self.gateway = SimpleNamespace(id=f"gw{index}")
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def dealing(collections: list[list[str]]) -> tuple[Dealing, list[Worker], SimpleNamespace]:
    """One worker for each collection, and the session, which keeps what is reported."""
    session = SimpleNamespace(testscollected=0)
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: session),
        hook=SimpleNamespace(pytest_collectreport=lambda report: told.append(report)),
        option=SimpleNamespace(maxprocesses=None),
        getvalue=lambda name: ["popen"] * len(collections),
    )
    told = session.told = []
    found = Dealing(config)
    workers = [Worker(index) for index in range(len(collections))]
    for worker, collection in zip(workers, collections, strict=True):
        found.add_node(worker)
        found.add_node_collection(worker, collection)
    return found, workers, session


def play(found: Dealing, workers: list[Worker]) -> list[str]:
    """Each worker runs what it is told in turn; the tests in the order they were run."""
    ran = []
    while any(worker.told for worker in workers):
        for worker in workers:
            if worker.told:
                place = worker.told.pop(0)
                ran.append(found.registered_collections[worker][place])
                found.mark_test_complete(worker, place)
    return ran
