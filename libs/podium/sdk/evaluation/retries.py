"""Requests of a model's API, again where it was busy."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

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
        for number in range(self.attempts):
            if number:
                await asyncio.sleep(self._pause(number, asked))
            try:
                response = await client.post(path, json=body, timeout=self.timeout_seconds)
            except httpx.HTTPError as error:
                problem, asked = f"gave no answer: {error!r}", None
                continue
            if response.is_success:
                return response
            if response.status_code not in _BUSY and not response.is_server_error:
                raise RefusedError(response)
            problem, asked = f"answered {response.status_code}: {_text(response)}", _asked(response)
        raise NotAnsweredError(f"the model's API {problem} (asked {self.attempts} times)")

    def _pause(self, number: int, asked: float | None) -> float:
        if asked is not None:
            # Not before it said.
            return random.uniform(1.0, 1.25) * min(asked, self.longest_seconds)
        longest = min(self.first_seconds * 2.0 ** (number - 1), self.longest_seconds)
        return random.uniform(0.5, 1.0) * longest


def _asked(response: httpx.Response) -> float | None:
    """Seconds of Retry-After; None for none that can be read."""
    value = response.headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
        seconds = max(seconds, 0.0)
    return seconds if 0 <= seconds < float("inf") else None


def _text(response: httpx.Response) -> str:
    return response.text[:_SHOWN]
