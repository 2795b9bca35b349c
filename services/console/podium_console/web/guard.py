"""What every request goes through: by which name it came, from whose page, with whose token.

The console has no rights: the token that a browser presents goes on to the services, which decide.
What is left to guard here is the browser. A page of somebody else's must not act with the cookie,
nor with the mere fact that this port can be reached from here, when no token is asked for.
"""

from __future__ import annotations

import base64
import binascii
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from podium.core.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from podium_console.adapters import caller
from podium_console.domain import metrics
from podium_console.settings import Settings
from podium_console.web import replies
from podium_console.web.gateway import calls, refusals
from podium_console.web.replies import TooLargeError

MARK = "x-podium-console"
"""A header that only scripts of the same origin can send: others need leave, and get none."""
TOKEN_BYTES = 2800
"""The longest token: base64 of it must fit a cookie."""
BODY_BYTES = 1024 * 1024
_SAFE = frozenset({"GET", "HEAD"})
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: Starlette, settings: Settings) -> None:
        self.app = app
        self._hosts = settings.hosts
        self._cookie = cookie_name(settings)
        self._https = settings.public_https or settings.tls_certificate_file is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        begun, answered = time.monotonic(), 0

        async def tell(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
                self._dress(MutableHeaders(scope=message), scope["path"])
                route = _route(scope)
                metrics.REQUESTS.labels(route, str(answered)).inc()
                metrics.SECONDS.labels(route).observe(time.monotonic() - begun)
            await send(message)

        called = scope["path"].startswith(calls.PREFIX)
        refusal = self._refusal(scope, headers, called)
        if refusal:
            await (_refuse_call if called else _refuse)(*refusal)(scope, receive, tell)
            return
        caller.speak_as(_bearer(headers) or ("" if called else self._cookies(headers)))
        try:
            await self.app(scope, _bounded(receive), tell)
        except Exception as error:
            # Starlette has answered, if it could, and has this end the connection too.
            if not answered:
                await replies.on_defect(Request(scope), error)(scope, receive, tell)

    def _refusal(self, scope: Scope, headers: Headers, called: bool) -> tuple[int, str, str] | None:
        """What stands against a request of a page, or a call of the API: that needs no mark, for
        its token is never a cookie's and its JSON no form can send."""
        host = headers.get("host", "")
        if self._hosts and _name(host) not in self._hosts:
            words = "this name is not among PODIUM_CONSOLE_ALLOWED_HOSTS"
            return 421, "HOST_NOT_ALLOWED", words
        if not headers.get("content-length", "0").isdecimal():
            return 400, "BAD_LENGTH", "content-length is no number"
        if int(headers.get("content-length", "0")) > BODY_BYTES:
            return 413, "TOO_LARGE", f"a request may have {BODY_BYTES} bytes"
        if scope["method"] in _SAFE:
            return None
        origin = headers.get("origin")
        foreign = origin is not None and _host_of(origin) != host.lower()
        site = headers.get("sec-fetch-site", "same-origin")
        if foreign or site not in ("same-origin", "none"):
            return 403, "FOREIGN_PAGE", "no page of another origin may do this"
        if called:
            return None
        if MARK not in headers:
            return 403, "FOREIGN_PAGE", f"only the console's own pages may do this ({MARK})"
        if scope["method"] == "POST" and not headers.get("content-type", "").startswith(
            "application/json"
        ):
            return 415, "NOT_JSON", "the body must be application/json"
        return None

    def _cookies(self, headers: Headers) -> str:
        return read_cookie(headers.get("cookie", ""), self._cookie)

    def _dress(self, headers: MutableHeaders, path: str) -> None:
        for name, value in HEADERS.items():
            headers[name] = value
        if self._https:
            headers["strict-transport-security"] = "max-age=31536000"
        if "cache-control" not in headers:
            headers["cache-control"] = "no-cache" if path.startswith("/static/") else "no-store"


def cookie_name(settings: Settings) -> str:
    """Browsers hold a name with `__Host-` to HTTPS and to this very host."""
    https = settings.public_https or settings.tls_certificate_file is not None
    return "__Host-podium" if https else "podium"


def is_token(token: str) -> bool:
    """Whether it can stand in a header of gRPC's, and in a cookie."""
    return 0 < len(token) <= TOKEN_BYTES and all(" " < letter <= "~" for letter in token)


def write_cookie(token: str) -> str:
    """A token in letters that a cookie may have."""
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def read_cookie(header: str, name: str) -> str:
    """The token in a Cookie header; empty for none, and for what no `write_cookie` has made."""
    try:
        found = SimpleCookie(header).get(name)
        value = found.value if found else ""
        token = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        text = token.decode("ascii")
    except (CookieError, binascii.Error, UnicodeDecodeError, ValueError):
        return ""
    return text if is_token(text) else ""


def _bounded(receive: Receive) -> Receive:
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES:
            raise TooLargeError(f"a request may have {BODY_BYTES} bytes", reason="TOO_LARGE")
        return message

    return bounded


def _refuse(status: int, reason: str, words: str) -> Response:
    body = {"error": {"message": words, "reason": reason, "error_id": "", "violations": []}}
    return JSONResponse(body, status)


def _refuse_call(status: int, reason: str, words: str) -> Response:
    kind = {400: InvalidArgumentError, 413: ResourceExhaustedError}.get(
        status, PermissionDeniedError
    )
    return refusals.answer(kind(words, reason=reason), status)


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and is_token(token) else ""


def _route(scope: Scope) -> str:
    route = scope.get("route")
    return getattr(route, "path", "") or "other"


def _host_of(origin: str) -> str:
    """Empty for what is no origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name(host: str) -> str:
    """A host without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
