"""A model behind an OpenAI-compatible HTTP API that answers with JSON of a schema."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import httpx
from opentelemetry.trace import SpanKind

from podium.chat.config import CallLimits, Endpoint, Price, Sampling, Usage
from podium.chat.http_api import HttpApi, Nobody, Observer
from podium.chat.models import frozen_model
from podium.chat.replies import Asked, Reply, completion_of
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.core.weight_modes import MERGED, WEIGHT_MODE_HEADER
from podium.kit.telemetry import attributes, traced, tracer

log = logging.getLogger(__name__)
_tracer = tracer(__name__)

_TOO_LONG = ("context length", "context_length", "maximum context", "too long", "context window")

# Parameters that some servers refuse by name, each with the names that they use for it.
_OPTIONAL_PARAMETERS = {
    "response_format": ("response_format", "json_schema", "guided"),
    "temperature": ("temperature",),
    "max_completion_tokens": ("max_completion_tokens", "max_tokens"),
    "seed": ("seed",),
}


class RequestRefusedError(Exception):
    """The API will not answer this very request."""


class PromptTooLongError(RequestRefusedError):
    """The API will not answer it because it does not fit the model's context."""


class StructuredChat:
    """Asks over `POST {base_url}/chat/completions` with a JSON schema as response format.

    A parameter that the server refuses by name is left out from then on, so that
    servers without schemas, or with a fixed temperature, work too.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        endpoint: Endpoint,
        sampling: Sampling = Sampling(),  # noqa: B008 - immutable
        limits: CallLimits = CallLimits(),  # noqa: B008 - immutable
        price: Price | None = None,
        *,
        role: str = "model",
        observer: Observer | None = None,
    ) -> None:
        """Asks nothing yet.

        Args:
            client: without a timeout of its own that is shorter than `limits`.
            price: of a million tokens; without it, usage has no cost.
            role: what errors call the model, and their reason begins with.
            observer: told of every call.
        """
        self._endpoint = endpoint
        self._sampling = sampling
        self._price = price
        self._role = role
        self._observer: Observer = observer or Nobody()
        self._api = HttpApi(client, endpoint, limits, role=role, observer=self._observer)
        self._model = endpoint.model
        self._dropped: set[str] = set()

    @property
    def name(self) -> str:
        """As its API calls it; empty until the API has been asked what it serves."""
        return self._model

    async def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        usage: Usage,
        name: str = "answer",
        seed: int | None = None,
    ) -> Reply:
        """One answer; adds its cost to `usage`.

        Args:
            messages: the conversation, as the API takes it.
            schema: JSON Schema of the answer, called `name`.
            seed: of the sampling, unless the endpoint's own parameters have one.

        Raises:
            PromptTooLongError: the conversation does not fit the model's context.
            RequestRefusedError: the API refuses it for good for another reason.
            UnavailableError: it cannot be reached, or not now, after the retries.
            FailedPreconditionError: wrong key, address or model name.
        """
        looked_up = ""
        if not self._model:
            looked_up = self._model = await self._frozen_model()
        try:
            return await self._traced(messages, schema, usage, name, seed)
        except FailedPreconditionError as error:
            if self._endpoint.model or error.metadata.get("status") != "404" or looked_up:
                raise
        # What was found there once is there no more.
        self._model = await self._frozen_model()
        return await self._traced(messages, schema, usage, name, seed)

    async def merges(self) -> bool:
        """Whether its endpoint is a pool of Podium's that merges what it trains.

        Raises:
            UnavailableError: it cannot be reached, or not now, after the retries.
            FailedPreconditionError: it refuses to list its models.
        """
        response = await self._api.request("GET", "/models")
        mode: str | None = response.headers.get(WEIGHT_MODE_HEADER)
        return mode == MERGED

    async def try_key(self) -> None:
        """Has the API say whether it takes key and address, which costs nothing.

        No model answers a conversation without messages.

        Raises:
            UnavailableError: it cannot be reached, or not now, after the retries.
            FailedPreconditionError: wrong key, address or model name.
        """
        body = {"model": self._model, "messages": [], "max_tokens": 1}
        await self._api.request("POST", "/chat/completions", body)

    async def _traced(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        usage: Usage,
        name: str,
        seed: int | None,
    ) -> Reply:
        told = {
            attributes.GEN_AI_OPERATION_NAME: "chat",
            attributes.GEN_AI_REQUEST_MODEL: self._model,
        }
        with traced(_tracer, f"chat {self._model}", told, kind=SpanKind.CLIENT):
            return await self._chat(messages, schema, usage, name, seed)

    async def _chat(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        usage: Usage,
        name: str,
        seed: int | None,
    ) -> Reply:
        while True:
            body = self._body(messages, schema, name, seed)
            response = await self._api.request("POST", "/chat/completions", body)
            usage.calls += 1
            if response.status_code in (400, 413, 422):
                refused = self._refused_parameter(body, response.text)
                if not refused:
                    self._observer.called("rejected")
                    raise _refusal(response, self._role)
                log.info(f"the {self._role} API refuses a parameter", extra={"parameter": refused})
                self._dropped.add(refused)
                continue
            return self._reply(response, body, usage)

    def _body(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        name: str,
        seed: int | None,
    ) -> dict[str, Any]:
        drawn = {} if seed is None else {"seed": seed}
        body: dict[str, Any] = (
            drawn
            | json.loads(self._sampling.extra_body)
            | {
                "model": self._model,
                "messages": list(messages),
                "temperature": self._sampling.temperature,
                "max_completion_tokens": self._sampling.max_completion_tokens,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": name, "strict": True, "schema": schema},
                },
            }
        )
        return {key: value for key, value in body.items() if key not in self._dropped}

    def _refused_parameter(self, body: Mapping[str, Any], text: str) -> str:
        for parameter, names in _OPTIONAL_PARAMETERS.items():
            if parameter in body and any(name in text for name in names):
                return parameter
        return ""

    def _reply(self, response: httpx.Response, body: Mapping[str, Any], usage: Usage) -> Reply:
        asked = len(json.dumps(body["messages"], ensure_ascii=False).encode(errors="replace"))
        try:
            answer = completion_of(response.content, asked)
        except ValueError:
            self._observer.called("malformed")
            status = response.status_code
            what = "something that is no chat completion" if status == 200 else f"HTTP {status}"
            raise UnavailableError(
                f"the {self._role} endpoint answered with {what}",
                reason=self._api.reason("UNAVAILABLE"),
            ) from None
        prompt, completion = answer.prompt_tokens, answer.completion_tokens
        usage.prompt_tokens += prompt
        usage.completion_tokens += completion
        cost = self._price.of(prompt, completion) if self._price else None
        usage.cost += cost or 0.0
        self._observer.spent(prompt, completion, cost)
        self._observer.called("ok")
        return replace(answer.reply, asked=_asked(body, self._dropped))

    async def _frozen_model(self) -> str:
        """The first model that the API lists, but for those that Podium trains there."""
        response = await self._api.request("GET", "/models")
        if response.headers.get(WEIGHT_MODE_HEADER) == MERGED:
            raise FailedPreconditionError(
                f"no {self._role} model is named, and the {self._role} endpoint is a pool that"
                " merges what it trains into its weights: the policy under training would answer."
                " Name another endpoint and its model, or have the pool serve adapters",
                reason=self._api.reason("MISCONFIGURED"),
            )
        name = frozen_model(response.content)
        if not name:
            raise FailedPreconditionError(
                f"the {self._role} endpoint lists no model; name one"
                if name is None
                else f"the {self._role} endpoint lists none but policies that Podium trains; name"
                " another model",
                reason=self._api.reason("MISCONFIGURED"),
            )
        return name


def _asked(body: Mapping[str, Any], dropped: Set[str]) -> Asked:
    seed = body.get("seed")
    return Asked(
        body.get("temperature"),
        # A job's own parameters hold anything.
        seed if type(seed) is int and -(2**63) <= seed < 2**63 else None,
        body.get("max_completion_tokens"),
        tuple(sorted(each for each in dropped if each not in body)),
    )


def _refusal(response: httpx.Response, role: str) -> RequestRefusedError:
    text = response.text.lower()
    if response.status_code == 413 or any(words in text for words in _TOO_LONG):
        return PromptTooLongError(f"the prompt does not fit the context of the {role}")
    return RequestRefusedError(f"the {role} API answered {response.status_code}")
