"""Where the services are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from podium.launcher import upfile

ENVIRONMENT = {
    "controller": "PODIUM_ADDRESS",
    "registry": "PODIUM_REGISTRY_ADDRESS",
    "inference": "PODIUM_INFERENCE_ADDRESS",
    "rollout": "PODIUM_ROLLOUT_ADDRESS",
    "judge": "PODIUM_JUDGE_ADDRESS",
}


@dataclass(frozen=True)
class Addresses:
    """`host:port` of each service that clients call; the defaults are a laptop's."""

    controller: str = "127.0.0.1:50051"
    registry: str = "127.0.0.1:50052"
    inference: str = "127.0.0.1:50053"
    rollout: str = "127.0.0.1:50054"
    judge: str = "127.0.0.1:50055"
    source: str = "the default ports of this machine"
    """Where the controller's address came from, for error messages."""
    token: str = field(default="", repr=False)
    """The bearer token to present with every call; empty for none."""


def locate(controller: str = "", data_dir: Path | None = None) -> Addresses:
    """Finds the services: what is given, else the environment, else `up.json`, else defaults.

    `up.json` is looked for in `data_dir`, else in `.podium` of the current
    directory or one above it. A controller that is given or comes from the
    environment is not mixed with the other services of an `up.json`. The
    token is PODIUM_TOKEN, else the one that `up.json` names.
    """
    given = {name: os.environ.get(variable, "") for name, variable in ENVIRONMENT.items()}
    source = ENVIRONMENT["controller"] if given["controller"] else ""
    if controller:
        given["controller"], source = controller, "--address"
    addresses = Addresses()
    if not source:
        addresses = _from_up_file(data_dir) or addresses
    token = os.environ.get("PODIUM_TOKEN", "") or addresses.token
    chosen = {name: address for name, address in given.items() if address}
    return replace(addresses, **chosen, source=source or addresses.source, token=token)


def _from_up_file(data_dir: Path | None) -> Addresses | None:
    folder = data_dir or upfile.find()
    found = upfile.read(folder) if folder else None
    if folder is None or found is None:
        return None
    known = {name: entry.address for name, entry in found.services.items() if name in ENVIRONMENT}
    token = Path(found.token_file).read_text().strip() if found.token_file else ""
    return Addresses(**known, source=str(upfile.path(folder)), token=token)
