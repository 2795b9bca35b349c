"""How requests to models go out: each by the proxy that the environment names for its address."""

from __future__ import annotations

import httpx

from podium.core.errors import FailedPreconditionError
from podium.core.proxies import proxy_of


class Transport(httpx.AsyncBaseTransport):
    """httpx's own, one a proxy.

    A client of httpx reads the environment when it is made, and fails there for a proxy or a
    NO_PROXY that it cannot read, though nobody asks for anything beyond this machine.
    """

    def __init__(self, role: str, limits: httpx.Limits | None = None) -> None:
        """`role` is whose address it is, for errors; `limits` hold for each proxy."""
        self._role = role
        self._limits = limits or httpx.Limits()
        self._transports: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx.

        Raises:
            FailedPreconditionError: the proxy is none that can be used ({ROLE}_MISCONFIGURED).
            httpx.TransportError: as httpx's; ProxyError, too, where the proxy does not answer.
        """
        proxy = proxy_of(request.url.scheme, request.url.host, request.url.port)
        transport = self._transport(proxy)
        try:
            return await transport.handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if not proxy:
                raise
            raise httpx.ProxyError(f"by the environment's proxy: {error}") from error

    async def aclose(self) -> None:
        """Closes every connection."""
        transports, self._transports = self._transports, {}
        for each in transports.values():
            await each.aclose()

    def _transport(self, proxy: str) -> httpx.AsyncHTTPTransport:
        if proxy not in self._transports:
            try:
                made = httpx.AsyncHTTPTransport(limits=self._limits, proxy=proxy or None)
            except (ImportError, ValueError, httpx.InvalidURL):
                # Not whole: it may hold a password.
                scheme = proxy.partition("://")[0]
                raise FailedPreconditionError(
                    f"the environment's proxy, {scheme}://…, cannot lead to the {self._role}:"
                    " allowed are http://host:port and https://host:port; NO_PROXY names what needs"
                    " none",
                    reason=f"{self._role.upper().replace(' ', '_')}_MISCONFIGURED",
                ) from None
            self._transports[proxy] = made
        return self._transports[proxy]
