"""The environment of each service on one machine: the only place that knows their settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from podium.core import trace_links
from podium.local.launcher.config import LauncherConfig
from podium.local.launcher.gpus import trainer_gpus
from podium.local.launcher.layout import Ports

_PEERS = {
    "controller": ("registry", "inference", "rollout", "judge", "trainer"),
    "inference": ("registry",),
    "rollout": ("inference",),
    "trainer": ("registry",),
    "tracking": ("controller",),
    "console": ("controller", "registry", "inference", "rollout"),
}
_STATEFUL = ("controller", "registry", "inference", "tracking")
# Ctrl-C on a laptop should not wait for the longest RPC.
_DRAIN_SECONDS = "5"
TRAINER_POOL = "shared"
"""The name of the trainer pool of a stack in which several jobs run at once."""
_JUDGE_URL = "PODIUM_JUDGE_BASE_URL"


def of_service(
    name: str, config: LauncherConfig, ports: Mapping[str, Ports], data_dir: Path
) -> dict[str, str]:
    """Every variable of one service, on top of this process's own environment."""
    own = {
        "host": "127.0.0.1",
        "port": str(ports[name].grpc),
        "health_port": str(ports[name].health),
        "metrics_port": str(ports[name].metrics),
        "drain_seconds": _DRAIN_SECONDS,
        "log_format": "json",
    }
    own |= {f"{peer}_address": address(ports[peer].grpc) for peer in _PEERS.get(name, ())}
    if name in _STATEFUL:
        own["data_dir"] = str(data_dir / name)
    # The console has no token of its own: who looks at its pages presents theirs.
    if config.auth and name != "console":
        token = str(token_path(data_dir))
        own |= {"auth_tokens_file": token, "token_file": token}
        if name == "inference":
            own["api_keys_file"] = str(api_key_path(data_dir))
        if name == "judge" and "PODIUM_JUDGE_BASE_URL" not in config.environment:
            # Never shown to others' models.
            own["key_file"] = token
    if name == "tracking":
        own["secrets_dir"] = str(data_dir / "secrets")
    own |= _specific(name, config, ports)
    variables = {f"PODIUM_{name.upper()}_{key.upper()}": value for key, value in own.items()}
    # On somebody's own machine their jobs may read what lies where they started it.
    default = {"PODIUM_SCENARIOS_DIR": os.getcwd()} if name == "rollout" else {}
    if name == "controller":
        default["PODIUM_CONTROLLER_TRACKING"] = str("tracking" in config.services).lower()
        gpus = trainer_gpus({**os.environ, **config.environment})
        default["PODIUM_CONTROLLER_TRAINER_GPUS"] = str(gpus)
    if name == "console":
        # What the CLI links traces by; it takes no notice of one that leads nowhere.
        template = os.environ.get("PODIUM_TRACE_URL", "").strip()
        default["PODIUM_CONSOLE_TRACE_URL"] = template if trace_links.usable(template) else ""
    return {**default, **os.environ, "PYTHONUNBUFFERED": "1", **variables, **config.environment}


def token_path(data_dir: Path) -> Path:
    """Where a stack with `auth` keeps the token that its services and its CLI present."""
    return data_dir / "token"


def api_key_path(data_dir: Path) -> Path:
    """Where a stack with `auth` keeps the key for agents, which opens its OpenAI API alone."""
    return data_dir / "api-key"


def address(port: int) -> str:
    """`host:port` on this machine."""
    return f"127.0.0.1:{port}"


def openai_base_url(ports: Mapping[str, Ports]) -> str:
    """Base URL of the inference service's OpenAI API."""
    return f"http://{address(ports['inference'].http)}/v1"


def _shared(name: str, config: LauncherConfig, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Of a trainer that several jobs have at once, and of the controller that places them."""
    if name == "trainer":
        return {"max_jobs": str(config.jobs)}
    gpus = trainer_gpus({**os.environ, **config.environment})
    pool = {"address": address(ports["trainer"].grpc), "max_jobs": config.jobs, "gpus": gpus}
    return {
        "max_active_jobs": str(config.jobs),
        "trainer_pools": json.dumps({TRAINER_POOL: pool}),
        # The one trainer there is belongs to all.
        "trainer_address": "",
    }


def _specific(name: str, config: LauncherConfig, ports: Mapping[str, Ports]) -> dict[str, str]:
    match name:
        case "controller" | "trainer" if config.jobs > 1:
            return _shared(name, config, ports)
        case "inference":
            shared = "adapter" if config.jobs > 1 else ""
            chosen = {"dtype": config.dtype, "weight_mode": config.weight_mode or shared}
            return {
                "model": config.model,
                "http_port": str(ports[name].http),
                **{key: value for key, value in chosen.items() if value},
            }
        case "judge":
            # Whoever has a judge elsewhere says so as for the service alone.
            return {
                "base_url": os.environ.get(_JUDGE_URL) or openai_base_url(ports),
                # Whose machine it is may know what listens on it.
                "tell_failures": "true",
            }
        case "rollout":
            # As of judges.
            return {"tell_failures": "true"}
        case _:
            return {}
