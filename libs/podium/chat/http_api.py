"""A JSON API over HTTP: retries, limits and refusals, whatever is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import httpx

from podium.chat.config import CallLimits, Endpoint
from podium.core.backoff import Backoff, retry_after
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.core.weight_modes import WEIGHT_MODE_HEADER

_RETRIED_STATUS = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_REFUSED_STATUS = {
    401: "check its key",
    402: "its account has no credit left",
    403: "check its key, and what the key may do",
    404: "check its address and the model's name",
    405: "check its address",
}
# LiteLLM's proxy says its version. These two releases stole what their machine holds: keys of
# providers, clouds and clusters (LiteLLM's security update of March 2026).
_VERSION_OF_LITELLM = "x-litellm-version"
_STEALING = frozenset({"1.82.7", "1.82.8"})
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class Observer(Protocol):
    """Is told of every call, for metrics."""

    def called(self, outcome: str) -> None:
        """How a request ended: ok, busy, timeout, unreachable, refused (key, address or model
        name), rejected (this request), malformed."""
        ...

    def spent(self, prompt_tokens: int, completion_tokens: int, cost: float | None) -> None:
        """What an answer took; no cost without a price."""
        ...


class Nobody:
    """Is told of nothing that is kept."""

    def called(self, outcome: str) -> None:
        """Nothing is kept."""

    def spent(self, prompt_tokens: int, completion_tokens: int, cost: float | None) -> None:
        """Nothing is kept."""


class _TryAgainError(Exception):
    def __init__(self, what: str, after: float | None = None, status: int | None = None) -> None:
        super().__init__(what)
        self.after = after
        self.status = status


class HttpApi:
    """Asks again what meets a passing trouble, and reads no more than it must."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        endpoint: Endpoint,
        limits: CallLimits,
        *,
        role: str,
        observer: Observer | None = None,
        named: str = "",
    ) -> None:
        """Asks nothing yet.

        Args:
            client: without a timeout of its own that is shorter than `limits`.
            role: what the reasons of errors begin with.
            observer: told of every call.
            named: what errors call it, when it is no model of that role.
        """
        self._client = client
        self._endpoint = endpoint
        self._limits = limits
        self._role = role
        self._named = named or f"{role} model"
        self._place = named or f"{role} endpoint"
        self._observer: Observer = observer or Nobody()

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """The first answer that is no passing trouble; of the rest, any status.

        Raises:
            UnavailableError: it cannot be reached, or not now, after the retries; of the last
                try `metadata` has the HTTP status, where there is one.
            FailedPreconditionError: it refuses the key, the address or the name, or is a release of
                LiteLLM that steals keys.
        """
        problem = _TryAgainError("no request was made")
        longest = self._limits.max_backoff_seconds
        backoff = Backoff(self._limits.backoff_seconds, longest)
        for number in range(self._limits.attempts):
            if number:
                drawn = backoff.next()
                asked = problem.after
                await asyncio.sleep(drawn if asked is None else min(asked, longest))
            try:
                return await self._once(method, path, body)
            except _TryAgainError as error:
                problem = error
        raise UnavailableError(
            f"the {self._named} cannot be reached: {problem} (tried {self._limits.attempts} times)",
            reason=self.reason("UNAVAILABLE"),
            metadata={"status": str(problem.status)} if problem.status else None,
        )

    def reason(self, what: str) -> str:
        """The error reason for `what`, such as `UNAVAILABLE`."""
        return f"{self._role.upper().replace(' ', '_')}_{what}"

    async def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._endpoint.key}"} if self._endpoint.key else {}
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                response = await self._read(method, path, body, headers)
        except (TimeoutError, httpx.TimeoutException):
            self._observer.called("timeout")
            raise _TryAgainError(
                f"no answer within {self._limits.timeout_seconds:g} seconds"
            ) from None
        except httpx.HTTPError as error:
            self._observer.called("unreachable")
            raise _TryAgainError(type(error).__name__) from None
        if (version := response.headers.get(_VERSION_OF_LITELLM, "")) in _STEALING:
            self._observer.called("refused")
            raise FailedPreconditionError(
                f"the {self._place} is LiteLLM {version}, a release that steals keys: take it "
                "down, replace every key of its machine, and install another release",
                reason=self.reason("MISCONFIGURED"),
            )
        if response.status_code in _RETRIED_STATUS:
            self._observer.called("busy")
            raise _TryAgainError(
                f"HTTP {response.status_code}",
                retry_after(response.headers.get("retry-after", "")),
                response.status_code,
            )
        if response.status_code in _REFUSED_STATUS:
            self._observer.called("refused")
            raise FailedPreconditionError(
                f"the {self._place} refused with HTTP {response.status_code}: "
                f"{_REFUSED_STATUS[response.status_code]}",
                reason=self.reason("MISCONFIGURED"),
                metadata={"status": str(response.status_code)},
            )
        return response

    async def _read(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: dict[str, str]
    ) -> httpx.Response:
        async with self._client.stream(
            method, self._endpoint.base_url.rstrip("/") + path, json=body, headers=headers
        ) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > _MAX_ANSWER_BYTES:
                    raise httpx.DecodingError("the answer is too long")
        return httpx.Response(
            response.status_code, headers=_plain(response.headers), content=bytes(content)
        )


def _plain(headers: httpx.Headers) -> dict[str, str]:
    # The body is decoded already; its old encoding and length would be applied again.
    kept = ("content-type", "retry-after", WEIGHT_MODE_HEADER, _VERSION_OF_LITELLM)
    return {name: headers[name] for name in kept if name in headers}
