"""Environments by the file that holds them: `task.py`, or `task.py:Class`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.adapters.tuples import TupleEnvironment, from_tuples, has_tuples
from podium.environments.base import Environment


def is_task_file(name: str) -> bool:
    """Whether a name is a file's, such as `folder/task.py` or `task.py:Class`."""
    return split(name)[0].suffix == ".py"


def split(name: str) -> tuple[Path, str]:
    """The file, and the class after the colon; empty where there is none."""
    path, separator, kind = name.rpartition(":")
    return (Path(path), kind) if separator else (Path(name), "")


def load_task(name: str) -> type[Environment]:
    """The environment of a file, which needs no name when the file has one alone.

    Modules beside the file can be imported by it. A class that is no Environment but has `reset`
    and `step` is adapted by `from_tuples`.

    Raises:
        InvalidArgumentError: no such file, one that Python cannot run (with the line), or no such
            class in it.
    """
    path, wanted = split(name)
    if not path.is_file():
        raise _wrong(name, f"there is no file {path}")
    module = _run(path, name)
    if wanted:
        found = getattr(module, wanted, None)
        if found is None:
            raise _wrong(name, f"{path} has no class {wanted}{_known(module)}")
        return _environment(found, name)
    found = _candidates(module)
    if len(found) != 1:
        what = (
            f"{path} has several environments; name one as in {path}:{next(iter(found))}"
            f"{_known(module)}"
            if found
            else f"{path} has no environment: no class that derives from "
            "podium.environments.Environment, or has reset and step"
        )
        raise _wrong(name, what)
    return _environment(next(iter(found.values())), name)


def line_of(error: BaseException, folder: Path) -> str:
    """`task.py:12`, the innermost line below a folder that an error came by; empty without one."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}:{error.lineno}"
    folder = folder.resolve()
    inside = [
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _below(Path(frame.filename), folder)
    ]
    return inside[-1] if inside else ""


def _below(file: Path, folder: Path) -> bool:
    # Packages of a virtual environment in the task's folder are not the task's.
    return file.is_relative_to(folder) and "site-packages" not in file.parts


def _run(path: Path, name: str) -> ModuleType:
    path = path.resolve()
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(path.stem)
    # A file may be called as a module that is in use already, such as `random.py`.
    taken = known is not None or path.stem in sys.stdlib_module_names
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(
        f"podium_task_{path.stem}" if taken else path.stem, path
    )
    if spec is None or spec.loader is None:
        raise _wrong(name, f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        where = line_of(error, path.parent)
        said = error.msg if isinstance(error, SyntaxError) else error
        said = f"{type(error).__name__}: {said}"
        raise _wrong(name, f"Python stops at {where}: {said}" if where else said) from error
    return module


def _candidates(module: ModuleType) -> dict[str, object]:
    """What a file has made itself, by name: environments, else classes with reset and step."""
    made = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type) and _is_own(kind, module)
    }
    environments: dict[str, object] = {
        name: kind
        for name, kind in made.items()
        if issubclass(kind, Environment) and not inspect.isabstract(kind)
    }
    return environments or {name: kind for name, kind in made.items() if has_tuples(kind)}


def _is_own(kind: type, module: ModuleType) -> bool:
    adapted = issubclass(kind, TupleEnvironment) and kind is not TupleEnvironment
    return kind.__module__ == module.__name__ or adapted


def _environment(found: object, name: str) -> type[Environment]:
    if isinstance(found, type) and issubclass(found, Environment):
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        if missing:
            raise _wrong(name, f"{found.__name__} has no {', '.join(missing)}")
        return found
    if isinstance(found, type) and has_tuples(found):
        return from_tuples(found)
    raise _wrong(
        name,
        "is neither a subclass of podium.environments.Environment nor a class with reset and step",
    )


def _known(module: ModuleType) -> str:
    names = ", ".join(_candidates(module))
    return f"; it has {names}" if names else ""


def _wrong(name: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation("environment", f"got {name!r}: {why}")])
