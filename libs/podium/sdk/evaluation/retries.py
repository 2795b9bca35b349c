"""Requests of a model's API, again where it was busy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from podium.core.backoff import Backoff, retry_after
from podium.core.errors import UnavailableError

_BUSY = frozenset({408, 409, 425, 429})
_SHOWN = 200


class NotAnsweredError(UnavailableError):
    """The model was never heard: whatever it would have said, this is no failure of its."""


class RefusedError(Exception):
    """The API has heard the request and will not answer it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"the model's API answered {response.status_code}: {_text(response)}")
        self.status = response.status_code
        self.text = response.text


@dataclass(frozen=True)
class Retries:
    """How long a model's API is asked again."""

    attempts: int = 9
    """Requests, the first included."""
    first_seconds: float = 0.5
    """Before the second request; doubles from then on."""
    longest_seconds: float = 60.0
    """Between two requests, whatever the API asks for."""
    timeout_seconds: float = 120.0
    """Of one request."""

    async def post(
        self, client: httpx.AsyncClient, path: str, body: Mapping[str, Any]
    ) -> httpx.Response:
        """The first answer that is a success.

        Again after 408, 409, 425, 429 and 5xx, and where there was no answer: after what
        Retry-After asks for, in seconds or as a date, else twice as long each time. Each
        wait is drawn at random from there on, as those who were turned away together
        must not come back together.

        Raises:
            NotAnsweredError: there was none in all the attempts.
            RefusedError: any other status.
        """
        problem, asked = "", None
        backoff = Backoff(self.first_seconds, self.longest_seconds)
        for number in range(self.attempts):
            if number:
                drawn = backoff.next()
                if asked is not None:
                    # Not before it said.
                    drawn = random.uniform(1.0, 1.25) * min(asked, self.longest_seconds)
                await asyncio.sleep(drawn)
            try:
                response = await client.post(path, json=body, timeout=self.timeout_seconds)
            except httpx.HTTPError as error:
                problem, asked = f"gave no answer: {error!r}", None
                continue
            if response.is_success:
                return response
            if response.status_code not in _BUSY and not response.is_server_error:
                raise RefusedError(response)
            problem = f"answered {response.status_code}: {_text(response)}"
            asked = retry_after(response.headers.get("retry-after", ""))
        raise NotAnsweredError(f"the model's API {problem} (asked {self.attempts} times)")


def _text(response: httpx.Response) -> str:
    return response.text[:_SHOWN]
