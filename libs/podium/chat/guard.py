"""Where models that a job names may not be: addresses that tell a machine's own secrets."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

import httpx

from podium.core.errors import FailedPreconditionError

logger = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Where clouds answer any program of a machine with its credentials, beside the link-local ones.
_METADATA: frozenset[Address] = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
    )
)


def guard(allowed: Sequence[Network], role: str) -> Callable[[httpx.Request], Awaitable[None]]:
    """A request hook of httpx that refuses link-local and metadata addresses.

    A name is looked up as the connection will; one that cannot be found is left to that. Whoever
    runs the name's server may answer the connection otherwise: only the network's own rules hold
    against that.

    Args:
        allowed: networks in which such an address is let through.
        role: whose address it is, for the error.
    """

    async def check(request: httpx.Request) -> None:
        for address in await _addresses(request.url.host):
            if _is_refused(address) and not any(address in network for network in allowed):
                logger.warning(
                    "the address of a %s is refused", role, extra={"address": str(address)}
                )
                raise FailedPreconditionError(
                    f"the {role}'s address is a link-local or metadata address, which this"
                    " installation does not ask",
                    reason=f"{role.upper()}_MISCONFIGURED",
                )

    return check


async def _addresses(host: str) -> set[Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {_plain(str(info[4][0])) for info in found}


def _plain(text: str) -> Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_refused(address: Address) -> bool:
    return address.is_link_local or address.is_multicast or address in _METADATA
