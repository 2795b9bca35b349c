"""Models behind OpenAI-compatible APIs that speak in conversations beside the policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from podium.chat import ApiKeys, CallLimits, Endpoint, HttpApi
from podium.core.errors import PodiumError
from podium.core.openai_messages import message_of, to_openai, tools_to_openai
from podium.core.outside import clean, count_of, plain_of, whole_numbers
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics
from podium_rollout.domain.ports import PlayerAnswer, PlayerFailedError
from podium_rollout.settings import Settings

logger = logging.getLogger(__name__)

_ROLE = "player"
_KEYS = ApiKeys(
    "PODIUM_ROLLOUT_KEY",
    "the rollout service",
    "the addresses in PODIUM_ROLLOUT_TRUSTED_BASE_URLS, and base_url is none of them",
)
# A job may name any address; it is not to learn what listens there, and what not.
_WITHHELD = (
    "the player's model gave no answer that can be used: check its address, its key and the model's"
    " name; the rollout service's log says more"
)
_REFUSAL_CHARS = 300


class OpenAIPlayers:
    """Asks whatever models jobs name."""

    def __init__(self, client: httpx.AsyncClient, settings: Settings) -> None:
        """`client` has no timeout of its own that is shorter than the settings'."""
        self._client = client
        self._settings = settings
        self._trusted = {_normal(url) for url in settings.trusted_base_urls}

    def player(self, spec: spec_pb2.ModelPlayer, field: str) -> OpenAIPlayer:
        """See `podium_rollout.domain.ports.PlayerModels`."""
        trusted = _normal(spec.base_url) in self._trusted
        key = ""
        if spec.api_key_env:
            key = _KEYS.named(spec.api_key_env, f"{field}.api_key_env", trusted=trusted)
        limits = CallLimits(
            timeout_seconds=self._settings.player_timeout_seconds,
            attempts=self._settings.player_attempts,
        )
        api = HttpApi(
            self._client,
            Endpoint(spec.base_url, spec.model, key),
            limits,
            role=_ROLE,
            observer=_Counted(),
            named="player's model",
        )
        return OpenAIPlayer(api, spec, shows_failures=trusted or self._settings.tell_failures)


class OpenAIPlayer:
    """One of them, for one conversation of one episode."""

    def __init__(self, api: HttpApi, spec: spec_pb2.ModelPlayer, *, shows_failures: bool) -> None:
        """`shows_failures` is whether errors say what it answered."""
        self._api = api
        self._shows_failures = shows_failures
        self._options: dict[str, Any] = {
            **whole_numbers(plain_of(spec.extra_body)),
            "model": spec.model,
        }
        if spec.HasField("temperature"):
            self._options["temperature"] = spec.temperature
        if spec.HasField("max_completion_tokens"):
            self._options["max_completion_tokens"] = spec.max_completion_tokens

    async def answer(
        self, messages: Sequence[pb.Message], tools: Sequence[pb.Tool], seed: int
    ) -> PlayerAnswer:
        """See `podium_rollout.domain.ports.PlayerModel`."""
        body: dict[str, Any] = {
            **self._options,
            "messages": [_sent(message) for message in messages],
            "seed": seed,
        }
        if tools:
            body["tools"] = tools_to_openai(tools)
        try:
            response = await self._api.request("POST", "/chat/completions", body)
        except PodiumError as error:
            raise self._failed(error.message) from None
        if response.status_code != httpx.codes.OK:
            text = clean(response.text)[:_REFUSAL_CHARS]
            raise self._failed(
                f"the player's model refused with HTTP {response.status_code}: {text}"
            )
        return self._read(response)

    def _read(self, response: httpx.Response) -> PlayerAnswer:
        try:
            plain = response.json()
            said = plain["choices"][0]["message"]
        except (ValueError, LookupError, TypeError, RecursionError):
            said = None
        if not isinstance(said, Mapping):
            raise self._failed("the player's model answered with what is no chat completion")
        message = message_of({**said, "role": "assistant"})
        usage = plain.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        answer = PlayerAnswer(
            message,
            count_of(usage.get("prompt_tokens")),
            count_of(usage.get("completion_tokens")),
        )
        metrics.PLAYER_TOKENS.labels("prompt").inc(answer.prompt_tokens)
        metrics.PLAYER_TOKENS.labels("completion").inc(answer.completion_tokens)
        return answer

    def _failed(self, what: str) -> PlayerFailedError:
        if self._shows_failures:
            return PlayerFailedError(what)
        logger.info("a player that a job names: %s", what)
        return PlayerFailedError(_WITHHELD)


class _Counted:
    """Counts the calls."""

    def called(self, outcome: str) -> None:
        """See `podium.chat.Observer`."""
        metrics.PLAYER_CALLS.labels(outcome).inc()

    def spent(self, prompt_tokens: int, completion_tokens: int, cost: float | None) -> None:
        """What is read of an answer counts its tokens."""


def _sent(message: pb.Message) -> dict[str, Any]:
    plain = to_openai(message)
    # Its own thoughts: some APIs refuse a conversation that has them.
    plain.pop("reasoning_content", None)
    return plain


def _normal(url: str) -> str:
    return url.rstrip("/")
