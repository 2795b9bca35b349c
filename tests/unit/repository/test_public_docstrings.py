"""Every public name of `podium` says what it is, its members too, and what it raises by itself."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import podium


def own_classes(thing: type) -> list[type]:
    return [base for base in thing.__mro__ if base.__module__.split(".")[0] == "podium"]


def functions(thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions, methods and properties of an exported name, its bases' too."""
    if not inspect.isclass(thing):
        yield thing.__name__, thing
        return
    for base in own_classes(thing):
        for name, member in vars(base).items():
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            elif isinstance(member, property):
                member = member.fget
            if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
                yield f"{base.__name__}.{name}", member


def written(member: Callable[..., Any]) -> bool:
    """Whether it stands in a file of ours, and was not made by a decorator such as dataclass."""
    code = getattr(inspect.unwrap(member), "__code__", None)
    return code is not None and "/podium/" in code.co_filename


@cache
def classes_of(file: str) -> dict[str, ast.ClassDef]:
    """The classes of a module; `inspect.getsource` would parse it again for each of them."""
    body = ast.parse(Path(file).read_text()).body
    return {line.name: line for line in body if isinstance(line, ast.ClassDef)}


def bare_fields(written: ast.ClassDef) -> Iterator[str]:
    """The fields of a class after which no docstring stands."""
    for at, line in enumerate(written.body):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        after = written.body[at + 1] if at + 1 < len(written.body) else None
        said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if not line.target.id.startswith("_") and not said:
            yield f"{written.name}.{line.target.id}"


@cache
def raised(function: Callable[..., Any]) -> set[str]:
    """What a function's own body raises by name; of a helper's error the helper's annotation."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]]
    top = waiting[0]
    while waiting:
        node = waiting.pop()
        if node is not top and isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
        ):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(error).split(".")[-1]
            made = vars(sys.modules[function.__module__]).get(name)
            if isinstance(made, FunctionType):
                name = str(made.__annotations__["return"]).split(".")[-1]
            if name[:1].isupper():
                found.add(name)
        waiting += ast.iter_child_nodes(node)
    return found


def silent_raises(function: Callable[..., Any]) -> set[str]:
    said = (function.__doc__ or "").partition("Raises:")[2]
    return {name for name in raised(function) if f"{name}:" not in said}


def silent(name: str) -> list[str]:
    """What a public name does not say, of its members too."""
    thing = getattr(podium, name)
    # A dataclass without one is given its signature.
    said = (thing.__doc__ or f"{name}(").strip()
    found = [f"{name}: no docstring"] if said.startswith(f"{name}(") else []
    for place, member in functions(thing):
        if not written(member):
            continue
        member = inspect.unwrap(member)
        # A constructor without words takes the class's.
        if not (member.__doc__ or "").strip() and not place.endswith(".__init__"):
            found.append(f"{place}: no docstring")
        found += [f"{place}: raises {each} and does not say so" for each in silent_raises(member)]
    if inspect.isclass(thing):
        for base in own_classes(thing):
            bare = bare_fields(classes_of(inspect.getfile(base))[base.__name__])
            found += [f"{place}: a field without a docstring" for place in bare]
    return found


def test_a_public_name_says_what_it_is_and_what_it_raises() -> None:
    found = sorted({each for name in podium.__all__ for each in silent(name)})
    assert not found, "\n".join(found)


def elsewhere() -> ValueError:
    return ValueError("made by a helper")


def quiet(how: int) -> None:
    """Says one of three.

    Raises:
        KeyError: always the wrong one.
    """

    def inner() -> None:
        raise RuntimeError("of another function")

    if how == 1:
        raise KeyError(how)
    if how == 2:
        raise elsewhere()
    try:
        inner()
    except RuntimeError as error:
        raise OSError("told") from error


def test_the_walk_sees_what_is_raised_and_not_said() -> None:
    assert raised(quiet) == {"KeyError", "ValueError", "OSError"}
    assert silent_raises(quiet) == {"ValueError", "OSError"}


def test_the_walk_sees_a_bare_field() -> None:
    source = "class Made:\n    said: int\n    '''So.'''\n    bare: int = 0\n    _own: int = 0\n"
    made = ast.parse(source).body[0]
    assert isinstance(made, ast.ClassDef)
    assert list(bare_fields(made)) == ["Made.bare"]
    assert "Trajectory" in classes_of(inspect.getfile(podium.Trajectory))
