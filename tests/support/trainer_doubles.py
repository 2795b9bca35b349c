"""What of the trainer is played where nothing computes."""

from __future__ import annotations

from typing import Any


class Parked:
    """A session's part in who is live."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def park(self) -> None:
        self.said.append(f"park {self.name}")

    def unpark(self) -> None:
        self.said.append(f"unpark {self.name}")


class Asked:
    """A worker that keeps for whom it was to open jobs."""

    def __init__(self) -> None:
        self.projects: list[str] = []

    async def open(self, config: Any, resume_version: int | None, project: str) -> Any:
        self.projects.append(project)
        raise NotImplementedError
