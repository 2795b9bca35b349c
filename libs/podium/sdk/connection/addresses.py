"""Where the services are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.errors import InvalidArgumentError, NotFoundError, Violation
from podium.local.launcher import upfile

if TYPE_CHECKING:
    from podium.kit.rpc.tls import Tls
    from podium.kit.rpc.watched_files import Token
    from podium.sdk.connection.contexts import Context, Kubernetes

ENVIRONMENT = {
    "controller": "PODIUM_ADDRESS",
    "registry": "PODIUM_REGISTRY_ADDRESS",
    "inference": "PODIUM_INFERENCE_ADDRESS",
    "rollout": "PODIUM_ROLLOUT_ADDRESS",
    "judge": "PODIUM_JUDGE_ADDRESS",
}
CONTEXT = "PODIUM_CONTEXT"
DATA_DIR = "PODIUM_DATA_DIR"
TOKEN = "PODIUM_TOKEN"
TLS = ("PODIUM_TLS_CERTIFICATE_FILE", "PODIUM_TLS_KEY_FILE", "PODIUM_TLS_AUTHORITIES_FILE")
"""Files for mutual TLS with the services."""
SERVER_NAME = "PODIUM_TLS_SERVER_NAME"
"""Whose certificate the services show, where that is not the host of their address."""


@dataclass(frozen=True)
class Addresses:
    """`host:port` of each service that clients call.

    An empty one is reached through `kubernetes`, or not at all: a service that nobody named is
    never taken to be what happens to listen on this machine.
    """

    controller: str = ""
    registry: str = ""
    inference: str = ""
    rollout: str = ""
    judge: str = ""
    source: str = "Addresses()"
    """Where the controller's address came from, for error messages."""
    token: Token = field(default="", repr=False)
    """The bearer token to present with every call; empty for none, or for that of `kubernetes`."""
    tls: Tls | None = None
    """The certificate to show, and whose to take; None for plain text."""
    server_name: str = ""
    """Whose certificate it must be, where that is not the host of the address."""
    kubernetes: Kubernetes | None = None
    """The release whose API server leads to what has no address."""
    elsewhere: bool = False
    """Somebody named them: they are not what happens to run on this machine."""


THIS_MACHINE = Addresses(
    controller="127.0.0.1:50051",
    registry="127.0.0.1:50052",
    inference="127.0.0.1:50053",
    rollout="127.0.0.1:50054",
    judge="127.0.0.1:50055",
    source="the default ports of this machine",
)
"""Where `podium up` puts the services unless it is told otherwise."""


def locate(controller: str = "", data_dir: Path | None = None, context: str = "") -> Addresses:
    """Finds the services. The first of these that there is counts:

    1. `controller`, and the other addresses and the token of the environment;
    2. `context`, or `up.json` in `data_dir`, alone: the environment is not looked at;
    3. PODIUM_ADDRESS, as 1;
    4. `up.json` in PODIUM_DATA_DIR;
    5. PODIUM_CONTEXT, or the context in use (`podium context use`);
    6. `up.json` in `.podium` of the current directory or one above it;
    7. the default ports of this machine.

    Over 4 to 7 the environment's addresses of single services and PODIUM_TOKEN go first. A
    controller that is given is not mixed with services or token of an `up.json`, a context or this
    machine: services that were not named with it have no address.

    Raises:
        InvalidArgumentError: more than one of controller, data directory and context is given, an
            address is no host:port, the file of contexts is broken, or some files for TLS are
            missing.
        NotFoundError: there is no such context, or nothing runs in the data directory that is
            named (NO_STACK).
    """
    if sum((bool(controller), data_dir is not None, bool(context))) > 1:
        raise InvalidArgumentError(
            violations=[
                Violation("address", "name one of an address, a context and a data directory")
            ]
        )
    if context:
        return _from_context(context)
    if data_dir is not None:
        return of_stack(data_dir)
    given = {name: os.environ.get(variable, "") for name, variable in ENVIRONMENT.items()}
    token = os.environ.get(TOKEN, "")
    found, source = Addresses(), ""
    if controller:
        given["controller"], source = controller, "--address"
    elif given["controller"]:
        source = ENVIRONMENT["controller"]
    else:
        found = _found()
    chosen: dict[str, Any] = {
        name: checked(address, "--address" if controller and name == "controller" else variable)
        for (name, address), variable in zip(given.items(), ENVIRONMENT.values(), strict=True)
        if address
    }
    return replace(
        found,
        **chosen,
        source=source or found.source,
        token=token or found.token,
        tls=_tls() or found.tls,
        server_name=os.environ.get(SERVER_NAME, "") or found.server_name,
        elsewhere=bool(source) or found.elsewhere,
    )


def checked(address: str, name: str) -> str:
    """The address, if it is one; `name` is the flag or variable that it came by.

    Raises:
        InvalidArgumentError: it is not host:port.
    """
    scheme, separator, rest = address.partition("://")
    host, _, port = address.rpartition(":")
    if separator and scheme in ("http", "https", "grpc", "grpcs"):
        plain = rest.partition("/")[0]
        raise InvalidArgumentError(
            violations=[
                Violation(
                    name, f"got {address!r}; allowed is host:port, without {scheme}://: {plain}"
                )
            ]
        )
    target = separator or address.startswith(("unix:", "ipv4:", "ipv6:", "dns:"))
    if not target and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidArgumentError(
            violations=[Violation(name, f"got {address!r}; allowed is host:port")]
        )
    return address


def data_dir_in_use() -> Path | None:
    """The folder that PODIUM_DATA_DIR names; None where it is not set."""
    named = os.environ.get(DATA_DIR, "")
    return Path(named) if named else None


def tls_files() -> dict[str, str]:
    """Paths of the files that the environment names for TLS; empty where it names none.

    The keys are those of a context's `tls`.

    Raises:
        InvalidArgumentError: it names some and not all.
    """
    paths = [os.environ.get(variable, "") for variable in TLS]
    if not any(paths):
        return {}
    if not all(paths):
        raise InvalidArgumentError(
            violations=[
                Violation(variable, f"is not set; TLS needs all of {', '.join(TLS)}")
                for variable, path in zip(TLS, paths, strict=True)
                if not path
            ]
        )
    names = ("certificate_file", "key_file", "authorities_file")
    return dict(zip(names, paths, strict=True))


def _tls() -> Tls | None:
    files = tls_files()
    if not files:
        return None
    from podium.kit.rpc.tls import Tls

    return Tls.load(*map(Path, files.values()))


def context_in_use() -> str:
    """The name of PODIUM_CONTEXT, or of the saved context in use; empty for none.

    Raises:
        InvalidArgumentError: the file of contexts is broken.
    """
    if named := os.environ.get(CONTEXT, ""):
        return named
    from podium.sdk.connection import contexts

    return contexts.load().current


def of_context(name: str, context: Context, token: str) -> Addresses:
    """The addresses that a context names."""
    known = context.addresses.model_dump()
    named: dict[str, Any] = {service: known[service] or "" for service in ENVIRONMENT}
    return Addresses(
        **named,
        source=f"the context {name}",
        token=token,
        tls=context.tls.load() if context.tls else None,
        server_name=context.tls.server_name if context.tls else "",
        kubernetes=context.kubernetes,
        elsewhere=True,
    )


def of_stack(data_dir: Path) -> Addresses:
    """The addresses of what `podium up` runs in a data directory.

    Raises:
        NotFoundError: nothing runs there (NO_STACK).
    """
    found = _from_up_file(data_dir) if data_dir.is_dir() else None
    if found is None:
        there = "no stack runs there" if data_dir.is_dir() else "there is no such folder"
        raise NotFoundError(
            f"nothing runs in the data directory {data_dir}: {there}",
            reason="NO_STACK",
            metadata={"data_dir": str(data_dir)},
        )
    return found


def _found() -> Addresses:
    if folder := data_dir_in_use():
        return of_stack(folder)
    if name := context_in_use():
        return _from_context(name)
    here = upfile.find()
    return (_from_up_file(here) if here else None) or THIS_MACHINE


def _from_context(name: str) -> Addresses:
    from podium.sdk.connection import contexts

    context = contexts.load().named(name)
    return of_context(name, context, context.token(name))


def _from_up_file(folder: Path) -> Addresses | None:
    found = upfile.read(folder)
    if found is None:
        return None
    known: dict[str, Any] = {
        name: entry.address for name, entry in found.services.items() if name in ENVIRONMENT
    }
    token = Path(found.token_file).read_text(encoding="utf-8").strip() if found.token_file else ""
    return Addresses(**known, source=str(upfile.path(folder)), token=token)
