"""The reference of the Python package tells each name that a user meets."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import podium
import pytest
from docs_site import python_api
from podium.sdk.sync import SyncJobs
from support.document_commands import pages, python

ROOT = Path(__file__).parents[3]
DOCUMENTED = dict(python_api.documented(python_api.MODULES))
THINGS = {id(thing) for things in DOCUMENTED.values() for thing in things.values()}
# Generated from the contract, which has pages of its own; an environment that comes along, which
# has its README.
_OTHER = re.compile(r"_pb2(_grpc)?$|^podium\.environments\.(email_search|game_2048|search_qa)\b")


def missing(found: dict[str, Any]) -> list[str]:
    """The things of the package that the page does not tell."""
    return sorted(
        where
        for where, thing in found.items()
        if getattr(thing, "__module__", "").partition(".")[0] == "podium"
        and not _OTHER.search(thing.__module__)
        and id(thing) not in THINGS
    )


def test_every_name_that_the_package_exports_is_told() -> None:
    packages = (podium, podium.sdk, podium.training, podium.environments, podium.rewards)
    exported = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in packages
        for name in module.__all__
    }
    assert len(exported) > 80
    assert missing(exported) == []


async def test_every_part_of_a_client_is_told() -> None:
    async with podium.AsyncClient() as client:
        parts = {f"AsyncClient.{name}": type(part) for name, part in _public(client)}
    with podium.Client() as plain:
        parts |= {f"Client.{name}": type(part) for name, part in _public(plain)}
    assert {"AsyncClient.sessions", "Client.evaluations", "Client.models"} <= parts.keys()
    # A backend is what a client of `backend=` was given; the contract of one is told.
    assert missing(parts) == ["AsyncClient.backend", "Client.backend"]


def _public(thing: object) -> list[tuple[str, object]]:
    return [(name, part) for name, part in vars(thing).items() if not name.startswith("_")]


def test_what_a_told_method_gives_is_told() -> None:
    given = {
        f"{where} -> {name}": thing
        for things in DOCUMENTED.values()
        for documented in things.values()
        for where, function in _functions(documented)
        for name, thing in _given(function)
    }
    assert any(where.endswith("-> JobRun") for where in given)
    assert missing(given) == []


def _functions(thing: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(thing):
        yield thing.__name__, thing
    elif inspect.isclass(thing):
        for name, member in inspect.getmembers(thing):
            function = member.fget if isinstance(member, property) else member
            if inspect.isroutine(function) and not name.startswith("_"):
                yield f"{thing.__name__}.{name}", inspect.unwrap(function)


def _given(function: Any) -> Iterator[tuple[str, type]]:
    """The classes of a function's annotation, by the names of its module."""
    annotation = str(getattr(function, "__annotations__", {}).get("return", ""))
    for name in re.findall(r"(?<![\w.])[A-Z]\w+", annotation):
        thing = getattr(sys.modules[function.__module__], name, None)
        if inspect.isclass(thing):
            yield name, thing


def test_what_documents_and_examples_import_is_told() -> None:
    texts = {page: "\n".join(python((ROOT / page).read_text())) for page in pages()}
    texts |= {path.name: path.read_text() for path in (ROOT / "examples").rglob("*.py")}
    found = {}
    for page, text in texts.items():
        for module, name in _imported(text):
            thing = getattr(importlib.import_module(module), name)
            if not isinstance(thing, ModuleType):
                found[f"{page}: {module}.{name}"] = thing
    assert len(found) > 5
    assert missing(found) == []


def _imported(text: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "podium":
            yield from ((str(node.module), each.name) for each in node.names)


def test_a_thing_is_told_once_and_a_modules_own_tools_are_not() -> None:
    documented = [id(thing) for things in DOCUMENTED.values() for thing in things.values()]
    assert len(documented) == len(set(documented))
    page = python_api.page(python_api.MODULES)
    assert page.count(".TrainableModel\n") == 1
    assert ".. autoclass:: podium.sdk.sync.SyncSessions\n   :members:\n" in page
    assert ".. autofunction:: podium.sdk.analytics.get_performance_analytics\n" in page
    assert "PartT" not in page


@pytest.mark.parametrize(
    ("annotation", "plain"),
    [
        ("~collections.abc.AsyncGenerator[Job, None]", "Iterator[Job]"),
        ("AsyncGenerator[list[Job], None]", "Iterator[list[Job]]"),
        ("Job", "Job"),
        (None, None),
    ],
)
def test_a_plain_iterator_is_not_told_as_an_asynchronous_one(
    annotation: str | None, plain: str | None
) -> None:
    assert inspect.isgeneratorfunction(SyncJobs.list)
    assert python_api.returned(annotation) == plain
