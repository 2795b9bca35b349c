"""Which addresses an HTTP proxy of the environment leads to, and which none ever does.

HTTP_PROXY and its like are set for whole machines, and NO_PROXY is often forgotten: no proxy
serves what listens on this machine, or knows the names of a cluster.
"""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

# As others' clients understand them: a name, or all that ends so.
_KEPT = ("localhost", "127.0.0.1", "::1", ".svc", ".cluster.local")
_OF_GRPC = ("grpc_proxy", "https_proxy", "http_proxy")
_OF_GRPC_WITHOUT = ("no_grpc_proxy", "no_proxy")
_NAMES = ("no_proxy", "NO_PROXY")
_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)


def is_direct(host: str) -> bool:
    """Whether a host is this machine, or has a name that only its own network knows.

    The latter are names of a cluster (`judge.podium.svc`, whatever its domain) and those of one
    label. Addresses of a private network may well be behind a proxy, and are not meant.
    """
    host = host.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        labels = host.split(".")
    else:
        return address.is_loopback or address.is_unspecified
    # Of a Service, or of one pod of it.
    return len(labels) == 1 or labels[-1] == "localhost" or "svc" in labels[2:4]


def needs_environment(url: str) -> bool:
    """Whether a client of httpx for this address may have to know what the environment says.

    Proxies, that is, and authorities of certificates; some proxies it cannot read, and fails.
    """
    parts = urlsplit(url)
    return parts.scheme != "http" or not is_direct(parts.hostname or "")


def any_named() -> bool:
    """Whether the environment names a proxy, for whatever address.

    Clients of httpx that read the environment fail with ImportError or ValueError, whatever they
    are to call, where one of the proxies is none that they can use.
    """
    from urllib.request import getproxies_environment

    return bool(getproxies_environment().keys() - {"no"})


def proxy_of(scheme: str, host: str, port: int | None = None) -> str:
    """The URL of the proxy that leads to a host by the environment; empty for none.

    A bare `host:port` is http's, as curl takes it. The URL may hold a password, and may be none
    that a client can use. In NO_PROXY networks count, as they do for Go and gRPC, and
    `host:port`, as for httpx; without a port it is the scheme's own.
    """
    # Late: it is slow to load, and every command loads this module.
    from urllib.request import getproxies_environment

    named = getproxies_environment()
    proxy = named.get(scheme) or named.get("all") or ""
    if not proxy or is_direct(host):
        return ""
    bare = host.strip("[]")
    asked = f"[{bare}]" if ":" in bare else bare
    asked = f"{asked}:{port or _PORTS.get(scheme, 0)}"
    without = named.get("no", "")
    if "*" in _entries(without) or _is_named(asked, without) or _is_within(host, without):
        return ""
    return proxy if _SCHEME.match(proxy) else f"http://{proxy}"


def grpc_asks_proxy(host: str) -> bool:
    """Whether gRPC asks a proxy for a host: of the names it knows some, in lower case alone."""
    if is_direct(host) or not any(map(os.environ.get, _OF_GRPC)):
        return False
    without = next(filter(None, map(os.environ.get, _OF_GRPC_WITHOUT)), "")
    return not (_is_named(host, without) or _is_within(host, without))


def keep_direct() -> None:
    """Has every client of this process and of its children go to this machine directly.

    Others' libraries and programs, too: agents, MCP servers and exporters read NO_PROXY, in lower
    case, upper case or both. Does nothing where no proxy is named.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ.keys() - {*_NAMES}):
        return
    given = [each for name in _NAMES for each in _entries(os.environ.get(name, ""))]
    if "*" in given:
        return
    for name in _NAMES:
        os.environ[name] = ",".join(dict.fromkeys([*given, *_KEPT]))


def _entries(listed: str) -> list[str]:
    return [entry for each in listed.split(",") if (entry := each.strip())]


def _is_named(host: str, listed: str) -> bool:
    # proxy_bypass has other arguments on macOS and Windows.
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    return bool(proxy_bypass_environment(host, {"no": listed}))


def _is_within(host: str, listed: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    for each in _entries(listed):
        try:
            if address in ipaddress.ip_network(each, strict=False):
                return True
        except ValueError:
            continue
    return False
