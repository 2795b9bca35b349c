"""Which log lines somebody asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WantedLogs:
    """Which lines are asked for."""

    job: str
    services: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    tail: int | None = None
    since: str = ""
    previous: bool = False

    def takes(self, service: str) -> bool:
        """Whether a service's lines are; `inference` are all pools, `inference-NAME` is one."""
        return not self.services or any(
            service == each or service.startswith(f"{each}-") for each in self.services
        )
