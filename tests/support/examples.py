"""Programs of examples/, as modules."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[2] / "examples"


def imports(name: str) -> set[str]:
    """The modules that a program of examples/ imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((_FOLDER / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def example(name: str) -> ModuleType:
    """The program of that name; those beside it can be imported, as when it is run."""
    if str(_FOLDER) not in sys.path:
        sys.path.append(str(_FOLDER))
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
