"""What every test folder may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

# It puts its distutils in the place of Python's, which failed once in a worker where other tests
# had run before vLLM was imported: first of all, nothing is in its way.
import setuptools  # noqa: F401
from support.dealing import Dealing, collected_elsewhere, rank
from support.left_behind import nothing_left_behind
from xdist.remote import Producer

__all__ = ["nothing_left_behind"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# How long an example takes says something of the machine alone.
_ANY_SPEED = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("fast", _ANY_SPEED, max_examples=25)
hypothesis.settings.register_profile("full", _ANY_SPEED, max_examples=300)
hypothesis.settings.load_profile("fast")


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return collected_elsewhere(collection_path, config) or None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Dealing:
    return Dealing(config, log)


@pytest.hookimpl(specname="pytest_collection_modifyitems")
def pytest_longest_first(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))


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
