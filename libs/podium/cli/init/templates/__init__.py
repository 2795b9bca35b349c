"""The files that `podium init` writes."""

from __future__ import annotations

from importlib import resources

DEFAULT = "words"
TEMPLATES = {"words": "a question of one turn, learned in minutes by 135M parameters"}
"""Names, and what each is."""

_FILES = ("task.py", "job.yaml", "README.md")
_PLACEHOLDER = "__NAME__"


def files(template: str, name: str) -> dict[str, str]:
    """The files of a template by their names, for a task called `name`."""
    folder = resources.files(__name__) / template
    return {
        file: (folder / file).read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
        for file in _FILES
    }
