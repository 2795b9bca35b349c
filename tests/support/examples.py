"""Programs of examples/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[2] / "examples"


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
