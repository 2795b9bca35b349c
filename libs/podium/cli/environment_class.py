"""Environments by the names that commands take."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podium.environments import Environment


def scenarios_here() -> None:
    """Lets an environment of this process read files of scenarios below this folder."""
    os.environ.setdefault("PODIUM_SCENARIOS_DIR", os.getcwd())


def modules_here() -> None:
    """Lets Python import what lies in this folder: environments, and task sets that they name."""
    # As `python -m` has it; a console script does not.
    if "" not in sys.path:
        sys.path.insert(0, "")


def environment_class(name: str) -> type[Environment]:
    """A built-in environment by name, or any by file or by `package.module:Class`, from this
    folder too.

    Raises:
        PodiumError: there is none.
    """
    from podium.environments.catalog import load, load_class
    from podium.environments.task_file import is_task_file, load_task

    if is_task_file(name):
        return load_task(name)
    # What a built-in one is given may name a module, too, such as a taskset of verifiers.
    modules_here()
    return load_class(name) if ":" in name else load(name)
