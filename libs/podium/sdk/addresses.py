"""Where the services are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.launcher import upfile

if TYPE_CHECKING:
    from podium.rpc.tls import Tls
    from podium.rpc.watched_files import Token
    from podium.sdk.contexts import Context, Kubernetes

ENVIRONMENT = {
    "controller": "PODIUM_ADDRESS",
    "registry": "PODIUM_REGISTRY_ADDRESS",
    "inference": "PODIUM_INFERENCE_ADDRESS",
    "rollout": "PODIUM_ROLLOUT_ADDRESS",
    "judge": "PODIUM_JUDGE_ADDRESS",
}
CONTEXT = "PODIUM_CONTEXT"
TOKEN = "PODIUM_TOKEN"
TLS = ("PODIUM_TLS_CERTIFICATE_FILE", "PODIUM_TLS_KEY_FILE", "PODIUM_TLS_AUTHORITIES_FILE")
"""Files for mutual TLS with the services."""


@dataclass(frozen=True)
class Addresses:
    """`host:port` of each service that clients call; the defaults are a laptop's.

    An empty one is reached through `kubernetes`, or not at all.
    """

    controller: str = "127.0.0.1:50051"
    registry: str = "127.0.0.1:50052"
    inference: str = "127.0.0.1:50053"
    rollout: str = "127.0.0.1:50054"
    judge: str = "127.0.0.1:50055"
    source: str = "the default ports of this machine"
    """Where the controller's address came from, for error messages."""
    token: Token = field(default="", repr=False)
    """The bearer token to present with every call; empty for none, or for that of `kubernetes`."""
    tls: Tls | None = None
    """The certificate to show, and whose to take; None for plain text."""
    kubernetes: Kubernetes | None = None
    """The release whose API server leads to what has no address."""
    elsewhere: bool = False
    """Somebody named them: they are not what happens to run on this machine."""


def locate(controller: str = "", data_dir: Path | None = None, context: str = "") -> Addresses:
    """Finds the services. The first of these that there is counts:

    1. `controller`, and the other addresses and the token of the environment;
    2. `context`, alone: the environment is not looked at;
    3. PODIUM_ADDRESS, likewise;
    4. `up.json` in `data_dir`, where that is given;
    5. PODIUM_CONTEXT, or the context in use (`podium context use`);
    6. `up.json` in `.podium` of the current directory or one above it;
    7. the default ports of this machine.

    Over 4 to 7 the environment's addresses of single services and PODIUM_TOKEN go first. A
    controller that is given is not mixed with services or token of an `up.json` or a context.

    Raises:
        InvalidArgumentError: both a controller and a context are given, the file of contexts is
            broken, or some files for TLS are missing.
        NotFoundError: there is no such context.
    """
    if controller and context:
        raise InvalidArgumentError(
            violations=[Violation("context", "name an address or a context, not both")]
        )
    if context:
        return _from_context(context)
    given = {name: os.environ.get(variable, "") for name, variable in ENVIRONMENT.items()}
    token = os.environ.get(TOKEN, "")
    found, source = Addresses(), ""
    if controller:
        given["controller"], source = controller, "--address"
    elif given["controller"]:
        source = ENVIRONMENT["controller"]
    else:
        found = _found(data_dir)
    chosen: dict[str, Any] = {name: address for name, address in given.items() if address}
    return replace(
        found,
        **chosen,
        source=source or found.source,
        token=token or found.token,
        tls=_tls() or found.tls,
        elsewhere=bool(source) or found.elsewhere,
    )


def _tls() -> Tls | None:
    paths = [os.environ.get(variable, "") for variable in TLS]
    if not any(paths):
        return None
    if not all(paths):
        raise InvalidArgumentError(
            violations=[
                Violation(variable, f"is not set; TLS needs all of {', '.join(TLS)}")
                for variable, path in zip(TLS, paths, strict=True)
                if not path
            ]
        )
    from podium.rpc.tls import Tls

    certificate, key, authorities = map(Path, paths)
    return Tls.load(certificate, key, authorities)


def context_in_use() -> str:
    """The name of PODIUM_CONTEXT, or of the saved context in use; empty for none.

    Raises:
        InvalidArgumentError: the file of contexts is broken.
    """
    if named := os.environ.get(CONTEXT, ""):
        return named
    from podium.sdk import contexts

    return contexts.load().current


def of_context(name: str, context: Context, token: str) -> Addresses:
    """The addresses that a context names."""
    known = context.addresses.model_dump()
    named: dict[str, Any] = {service: known[service] or "" for service in ENVIRONMENT}
    return Addresses(
        **named,
        source=f"the context {name}",
        token=token,
        kubernetes=context.kubernetes,
        elsewhere=True,
    )


def _found(data_dir: Path | None) -> Addresses:
    if data_dir is not None:
        return _from_up_file(data_dir) or Addresses()
    if name := context_in_use():
        return _from_context(name)
    folder = upfile.find()
    return (_from_up_file(folder) if folder else None) or Addresses()


def _from_context(name: str) -> Addresses:
    from podium.sdk import contexts

    context = contexts.load().named(name)
    return of_context(name, context, context.token(name))


def _from_up_file(folder: Path) -> Addresses | None:
    found = upfile.read(folder)
    if found is None:
        return None
    known: dict[str, Any] = {
        name: entry.address for name, entry in found.services.items() if name in ENVIRONMENT
    }
    token = Path(found.token_file).read_text().strip() if found.token_file else ""
    return Addresses(**known, source=str(upfile.path(folder)), token=token)
