"""What a launcher is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podium.local.launcher.layout import DEFAULT_PORT_BASE

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class RestartPolicy:
    """When a child that died is started again.

    After `max_restarts` within `window_seconds`, or as many in a row without
    having served once, the launcher gives up. The pause before a restart
    doubles from `first_delay_seconds` with each one in the window.
    """

    enabled: bool = True
    max_restarts: int = 5
    window_seconds: float = 60.0
    first_delay_seconds: float = 0.5


@dataclass(frozen=True)
class LauncherConfig:
    """One local stack.

    `services` empty means the six. `environment` is added to every child's
    environment, after Podium's own variables, so that it can override them.
    `dtype` and `weight_mode` empty leave the choice to the inference service.
    """

    data_dir: Path
    port_base: int = DEFAULT_PORT_BASE
    services: tuple[str, ...] = ()
    model: str = DEFAULT_MODEL
    dtype: str = ""
    weight_mode: str = ""
    jobs: int = 1
    """How many run at once. Above 1 they share the trainer, and a pool of adapters."""
    auth: bool = False
    """Whether every call must present a token, which is made and kept in the data directory."""
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_seconds: float = 300.0
    """Until every service must have served once."""
    stop_timeout_seconds: float = 20.0
    """Between SIGTERM and SIGKILL."""
