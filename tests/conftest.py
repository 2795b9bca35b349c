"""What every test folder may use, and how tests are dealt to workers (`pytest -n 2`)."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import hypothesis
import pytest

# It puts its distutils in the place of Python's, which failed once in a worker where other tests
# had run before vLLM was imported: first of all, nothing is in its way.
import setuptools  # noqa: F401
from support.left_behind import nothing_left_behind
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

__all__ = ["nothing_left_behind"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# How long an example takes says something of the machine alone.
hypothesis.settings.register_profile("fast", deadline=None, max_examples=25)
hypothesis.settings.register_profile("full", deadline=None, max_examples=300)
hypothesis.settings.load_profile("fast")

# Each of these shares an engine, a stack or a trainer's memory with its neighbours: all of one kind
# go to one worker.
_TOGETHER = {
    "tests/integration/spine/": "stacks",
    "tests/integration/test_tutorial_demo": "stacks",
    "tests/integration/inference/": "pools",
    "tests/integration/trainer/": "trainers",
    "tests/integration/test_trainer_": "trainers",
    "tests/integration/test_bench_gpu": "trainers",
}
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
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run tests marked `long` too")
    parser.addoption(
        "--full",
        action="store_true",
        help="run tests marked `long` or `full` too, and properties over many more examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("full"):
        hypothesis.settings.load_profile("full")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collection makes lives to the end: a seventh of a worker's time went into looking
    through it for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("full"):
        return
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason="long: `make test-full` runs it (--full)"))
        elif item.get_closest_marker("long") and not config.getoption("long"):
            item.add_marker(pytest.mark.skip(reason="long: `make test-ci` runs it (--long)"))


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_APART):
            return nodeid
        for start, scope in _TOGETHER.items():
            if nodeid.startswith(start):
                return scope
        return str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    return _Scheduling(config, log)


@pytest.hookimpl(specname="pytest_collection_modifyitems")
def pytest_longest_first(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    ranks = (rank for rank, start in enumerate(_LONGEST_FIRST) if nodeid.startswith(start))
    return next(ranks, len(_LONGEST_FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half a surrogate pair in a report would end the whole run: workers send them as UTF-8."""
    report = yield
    report.sections = [(name, _sendable(text)) for name, text in report.sections]
    if report.longrepr is not None and not report.skipped:
        text = report.longreprtext
        if text != _sendable(text):
            report.longrepr = _sendable(text)
    return report


def _sendable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
