"""ART's way to name a judge, `openai/o4-mini` and LiteLLM's parameters, as Podium's judge model.

ART calls the judge from the agent's process; here the judge service does, with the
keys that its operator gave it. So a provider's name stands for an address and the name
of a key, and no key is ever sent along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

from podium.core.contract import validate
from podium.core.contract.judging import judge_violations
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2

PROVIDERS = {
    "deepseek": "https://api.deepseek.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together_ai": "https://api.together.xyz/v1",
}
"""LiteLLM's names of providers, and their OpenAI-compatible APIs."""

OWN = "podium"
"""The provider of what the judge service's default API serves."""
_SELF_HOSTED = "hosted_vllm"

_CLIENT_PARAMETERS = frozenset(
    {
        "api_key",
        "api_version",
        "cache",
        "caching",
        "custom_llm_provider",
        "drop_params",
        "extra_headers",
        "fallbacks",
        "headers",
        "max_retries",
        "num_retries",
        "request_timeout",
        "timeout",
    }
)
"""LiteLLM's own, no part of a request; keys, retries and limits are the judge service's."""


def judge_of(
    judge_model: str,
    extra_litellm_params: Mapping[str, Any] | None = None,
    *,
    base_url: str = "",
    api_key_env: str = "",
) -> spec_pb2.JudgeModel:
    """The judge that ART's arguments mean.

    ============================  =======================================================
    `judge_model`                 is asked as
    ============================  =======================================================
    empty                         the judge service's default model
    `NAME`, `podium/NAME`         NAME at the judge service's default API
    `PROVIDER/NAME`               NAME at the provider's API (`PROVIDERS`), with the key
                                  in the service's `PODIUM_JUDGE_KEY_PROVIDER`
    `hosted_vllm/NAME`,           NAME at `extra_litellm_params["api_base"]`
    `PROVIDER/NAME`
    anything with `base_url`      that name, whole, at `base_url`
    ============================  =======================================================

    Args:
        extra_litellm_params: `temperature`, `max_tokens` and `api_base` are what they are;
            others, such as `reasoning_effort`, go into the request as they are.
        base_url: of the judge's API; `judge_model` is then a name there, slashes and all.
        api_key_env: the judge service's variable with the key, in place of the provider's.

    Raises:
        InvalidArgumentError: a provider that is not reached, or a parameter that cannot be
            passed on, named with what is allowed.
    """
    extra = dict(extra_litellm_params or {})
    violations = [
        Violation(
            f"extra_litellm_params.{name}",
            "is LiteLLM's own; the judge service calls the judge, with keys, retries and time"
            " limits of its own (name a key of its with api_key_env)",
        )
        for name in sorted(_CLIENT_PARAMETERS & extra.keys())
    ]
    extra = {name: value for name, value in extra.items() if name not in _CLIENT_PARAMETERS}
    addresses = [extra.pop(name, "") for name in ("api_base", "base_url")]
    elsewhere = next((str(each) for each in addresses if each), "")
    judge = spec_pb2.JudgeModel()
    try:
        judge.base_url, judge.model, judge.api_key_env = _place(judge_model, base_url, elsewhere)
    except InvalidArgumentError as error:
        violations += error.violations
    judge.api_key_env = api_key_env or judge.api_key_env
    fields = {"temperature": extra.pop("temperature", None)}
    tokens = extra.pop("max_tokens", None)
    fields["max_completion_tokens"] = extra.pop("max_completion_tokens", tokens)
    fields |= {"extra_body": extra or None}
    for name, value in fields.items():
        try:
            json_format.ParseDict({} if value is None else {name: value}, judge)
        except (json_format.ParseError, TypeError, ValueError):
            violations.append(Violation(_argument(name), f"got {value!r}; it cannot be sent"))
    for each in (*validate(judge), *judge_violations(judge, "")):
        violations.append(Violation(_argument(each.field.lstrip(".")), each.description))
    if violations:
        raise InvalidArgumentError(violations=violations)
    return judge


def _argument(field: str) -> str:
    """The argument that a field of JudgeModel comes from."""
    if field in ("base_url", "api_key_env"):
        return field
    if field == "model":
        return "judge_model"
    inner = field.removeprefix("extra_body").lstrip(".")
    return f"extra_litellm_params.{inner}" if inner else "extra_litellm_params"


def _place(judge_model: str, base_url: str, elsewhere: str) -> tuple[str, str, str]:
    """The API's address, the model's name there, and the variable of its key."""
    if base_url:
        return base_url, judge_model, ""
    provider, slash, name = judge_model.partition("/")
    if elsewhere:
        stripped = slash and (provider in PROVIDERS or provider == _SELF_HOSTED)
        return elsewhere, name if stripped else judge_model, ""
    if not slash:
        return "", judge_model, ""
    if provider == OWN and name:
        return "", name, ""
    if provider in PROVIDERS and name:
        return PROVIDERS[provider], name, f"PODIUM_JUDGE_KEY_{provider.upper()}"
    known = ", ".join(f"{each}/" for each in sorted(PROVIDERS))
    raise InvalidArgumentError(
        violations=[
            Violation(
                "judge_model",
                f"got {judge_model!r}; allowed are a name of the judge service's default API"
                f" (with a slash in it: {OWN}/NAME), one after {known}, or any name with base_url",
            )
        ]
    )
