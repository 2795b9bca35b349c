"""The judge model behind an OpenAI-compatible HTTP API: the only module that speaks HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from opentelemetry.trace import SpanKind
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.telemetry import attributes, tracer

from podium_judge import metrics
from podium_judge.judge_config import CallLimits, JudgeConfig
from podium_judge.scores import Usage

log = logging.getLogger(__name__)
_tracer = tracer(__name__)

_RETRIED_STATUS = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_REFUSED_STATUS = {401, 403, 404, 405}
_MAX_ANSWER_BYTES = 4 * 1024 * 1024

_TOO_LONG = ("context length", "context_length", "maximum context", "too long", "context window")

# Parameters that some servers refuse by name, each with the names that they use for it.
_OPTIONAL_PARAMETERS = {
    "response_format": ("response_format", "json_schema", "guided"),
    "temperature": ("temperature",),
    "max_completion_tokens": ("max_completion_tokens", "max_tokens"),
}


class RequestRefusedError(Exception):
    """The API will not answer this very request."""


class PromptTooLongError(RequestRefusedError):
    """The API will not answer it because it does not fit the model's context."""


@dataclass(frozen=True)
class Reply:
    """What the model answered."""

    text: str
    cut_off: bool = False
    """Whether it ran into its token limit."""


class JudgeModel(Protocol):
    """A model that answers a conversation with JSON."""

    @property
    def name(self) -> str:
        """As its API calls it; empty until the API has been asked what it serves."""
        ...

    async def ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], usage: Usage
    ) -> Reply:
        """One answer; adds its cost to `usage`.

        Raises:
            PromptTooLongError: the conversation does not fit the model's context.
            RequestRefusedError: the API refuses it for good for another reason.
            UnavailableError: it cannot be reached, or not now, after the retries.
            FailedPreconditionError: wrong key, address or model name.
        """
        ...


class _TryAgainError(Exception):
    def __init__(self, what: str, after: float | None = None) -> None:
        super().__init__(what)
        self.after = after


class OpenAIJudge:
    """Asks over `POST {base_url}/chat/completions` with a JSON schema as response format.

    A parameter that the server refuses by name is left out from then on, so that
    servers without schemas, or with a fixed temperature, work too.
    """

    def __init__(self, client: httpx.AsyncClient, config: JudgeConfig, limits: CallLimits) -> None:
        self._client = client
        self._config = config
        self._endpoint = config.endpoint
        self._limits = limits
        self._model = config.endpoint.model
        self._dropped: set[str] = set()

    @property
    def name(self) -> str:
        """See `JudgeModel.name`."""
        return self._model

    async def ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], usage: Usage
    ) -> Reply:
        """See `JudgeModel.ask`."""
        if not self._model:
            self._model = await self._first_model()
        with _tracer.start_as_current_span(
            f"chat {self._model}",
            kind=SpanKind.CLIENT,
            attributes={
                attributes.GEN_AI_OPERATION_NAME: "chat",
                attributes.GEN_AI_REQUEST_MODEL: self._model,
            },
        ):
            return await self._chat(messages, schema, usage)

    async def _chat(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], usage: Usage
    ) -> Reply:
        while True:
            body = self._body(messages, schema)
            response = await self._request("POST", "/chat/completions", body)
            usage.calls += 1
            if response.status_code in (400, 413, 422):
                refused = self._refused_parameter(body, response.text)
                if not refused:
                    metrics.MODEL_CALLS.labels(outcome="rejected").inc()
                    raise _refusal(response)
                log.info("the judge API refuses a parameter", extra={"parameter": refused})
                self._dropped.add(refused)
                continue
            return self._reply(response, usage)

    def _body(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self._config.sampling.extra_body) | {
            "model": self._model,
            "messages": list(messages),
            "temperature": self._config.sampling.temperature,
            "max_completion_tokens": self._config.sampling.max_completion_tokens,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "scores", "strict": True, "schema": schema},
            },
        }
        return {name: value for name, value in body.items() if name not in self._dropped}

    def _refused_parameter(self, body: Mapping[str, Any], text: str) -> str:
        for parameter, names in _OPTIONAL_PARAMETERS.items():
            if parameter in body and any(name in text for name in names):
                return parameter
        return ""

    def _reply(self, response: httpx.Response, usage: Usage) -> Reply:
        try:
            answer = response.json()
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            spent = answer.get("usage") or {}
            prompt = max(0, int(spent.get("prompt_tokens") or 0))
            completion = max(0, int(spent.get("completion_tokens") or 0))
            cut_off = choice.get("finish_reason") == "length"
        except (ValueError, LookupError, TypeError, AttributeError):
            metrics.MODEL_CALLS.labels(outcome="malformed").inc()
            raise UnavailableError(
                "the judge endpoint answered with something that is no chat completion",
                reason="JUDGE_UNAVAILABLE",
            ) from None
        usage.prompt_tokens += prompt
        usage.completion_tokens += completion
        metrics.TOKENS.labels(kind="prompt", model=self._config.label).inc(prompt)
        metrics.TOKENS.labels(kind="completion", model=self._config.label).inc(completion)
        if self._config.price:
            cost = self._config.price.of(prompt, completion)
            usage.cost += cost
            metrics.COST.labels(model=self._config.label).inc(cost)
        metrics.MODEL_CALLS.labels(outcome="ok").inc()
        return Reply(text if isinstance(text, str) else json.dumps(text), cut_off)

    async def _first_model(self) -> str:
        response = await self._request("GET", "/models")
        try:
            name = response.json()["data"][0]["id"]
        except (ValueError, LookupError, TypeError):
            name = None
        if not isinstance(name, str) or not name:
            raise FailedPreconditionError(
                "the judge endpoint lists no model; name one", reason="JUDGE_MISCONFIGURED"
            )
        return name

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """The first answer that is not a passing trouble."""
        problem = _TryAgainError("no request was made")
        for number in range(self._limits.attempts):
            if number:
                await asyncio.sleep(self._pause(number, problem.after))
            try:
                return await self._once(method, path, body)
            except _TryAgainError as error:
                problem = error
        raise UnavailableError(
            f"the judge model cannot be reached: {problem} (tried {self._limits.attempts} times)",
            reason="JUDGE_UNAVAILABLE",
        )

    def _pause(self, number: int, asked: float | None) -> float:
        if asked is not None:
            return min(asked, self._limits.max_backoff_seconds)
        longest = self._limits.backoff_seconds * 2 ** (number - 1)
        # Full jitter: judges of many groups must not come back together.
        return random.uniform(0.5, 1.0) * min(longest, self._limits.max_backoff_seconds)

    async def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._endpoint.key}"} if self._endpoint.key else {}
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                response = await self._read(method, path, body, headers)
        except (TimeoutError, httpx.TimeoutException):
            metrics.MODEL_CALLS.labels(outcome="timeout").inc()
            raise _TryAgainError(
                f"no answer within {self._limits.timeout_seconds:g} seconds"
            ) from None
        except httpx.HTTPError as error:
            metrics.MODEL_CALLS.labels(outcome="unreachable").inc()
            raise _TryAgainError(type(error).__name__) from None
        if response.status_code in _RETRIED_STATUS:
            metrics.MODEL_CALLS.labels(outcome="busy").inc()
            raise _TryAgainError(f"HTTP {response.status_code}", _retry_after(response))
        if response.status_code in _REFUSED_STATUS:
            metrics.MODEL_CALLS.labels(outcome="refused").inc()
            raise FailedPreconditionError(
                f"the judge endpoint refused with HTTP {response.status_code}: "
                "check its address, its key and the model's name",
                reason="JUDGE_MISCONFIGURED",
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


def _refusal(response: httpx.Response) -> RequestRefusedError:
    text = response.text.lower()
    if response.status_code == 413 or any(words in text for words in _TOO_LONG):
        return PromptTooLongError("the prompt does not fit the judge model's context")
    return RequestRefusedError(f"the judge API answered {response.status_code}")


def _plain(headers: httpx.Headers) -> dict[str, str]:
    # The body is decoded already; its old encoding and length would be applied again.
    kept = ("content-type", "retry-after")
    return {name: headers[name] for name in kept if name in headers}


def _retry_after(response: httpx.Response) -> float | None:
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
