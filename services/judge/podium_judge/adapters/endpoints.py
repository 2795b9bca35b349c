"""Which judge models and scorers a reward means, at what price, and which API key may go there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from podium.chat import ApiKeys
from podium.core.contract.judging import (
    JudgedSpec,
    fallbacks_of,
    http_violations,
    judge_violations,
    judges_of,
    panel_violations,
)
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.outside import plain_of, whole_numbers
from podium.types.v1 import spec_pb2

from podium_judge.domain.judge_config import Endpoint, JudgeConfig, Price, Sampling
from podium_judge.settings import Settings

_KEYS = ApiKeys(
    "PODIUM_JUDGE_KEY",
    "the judge service",
    "the judge's default address and to those in PODIUM_JUDGE_TRUSTED_BASE_URLS, and base_url is"
    " neither",
)


def _normal(url: str) -> str:
    return url.rstrip("/")


def resolve_judges(
    spec: JudgedSpec,
    field: str,
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[JudgeConfig], list[JudgeConfig]]:
    """The judges of `spec`, which stands at `field`, and its fallbacks.

    Raises:
        InvalidArgumentError: names every fault of every judge, and fields that
            contradict each other.
    """
    violations = panel_violations(spec, field)
    found: list[JudgeConfig] = []
    first = judges_of(spec, field)
    for judge, path in (*first, *fallbacks_of(spec, field)):
        if wrong := judge_violations(judge, path):
            violations.extend(wrong)
            continue
        try:
            found.append(resolve_judge(judge, path, settings, environ))
        except InvalidArgumentError as error:
            violations.extend(error.violations)
        else:
            if spec.max_job_cost and found[-1].price is None:
                violations.append(
                    Violation(
                        f"{field}.max_job_cost",
                        f"got {spec.max_job_cost:g}, but {path} has no price; set both its "
                        "prices, or none of this",
                    )
                )
    if violations:
        raise InvalidArgumentError(violations=violations)
    return found[: len(first)], found[len(first) :]


def resolve_judge(
    spec: spec_pb2.JudgeModel,
    field: str,
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
) -> JudgeConfig:
    """The judge of `spec`, with the service's defaults for what it leaves empty.

    Whoever writes a job chooses the address, and must not learn the operator's keys
    by it: keys go only to the default address and to `trusted_base_urls`.

    `judge_violations` has found nothing in it.

    Raises:
        InvalidArgumentError: a key variable of another name or that is not set, or a
            key for an address that is not trusted.
    """
    base_url = _normal(spec.base_url or settings.base_url)
    trusted = _trusted(settings)
    is_default = base_url == _normal(settings.base_url)
    model = spec.model or (settings.model if is_default else "")
    return JudgeConfig(
        Endpoint(
            base_url,
            model,
            _key(spec.api_key_env, f"{field}.api_key_env", settings, base_url in trusted, environ),
        ),
        _sampling(spec, settings),
        _price(spec, settings, model),
        _label(settings, model, is_default),
        base_url in trusted or settings.tell_failures,
    )


def resolve_http(
    spec: spec_pb2.HttpScorerSpec,
    field: str,
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
) -> JudgeConfig:
    """Where a scorer over HTTP is, and what may be shown there; no key unless one is named.

    Raises:
        InvalidArgumentError: names every fault, as `resolve_judges` does.
    """
    if violations := http_violations(spec, field):
        raise InvalidArgumentError(violations=violations)
    base_url = _normal(spec.base_url)
    trusted = base_url in _trusted(settings)
    key = ""
    if spec.api_key_env:
        key = _key(spec.api_key_env, f"{field}.api_key_env", settings, trusted, environ)
    return JudgeConfig(
        Endpoint(base_url, spec.model, key),
        label=_label(settings, spec.model, False),
        trusted=trusted or settings.tell_failures,
    )


def _trusted(settings: Settings) -> set[str]:
    return {_normal(url) for url in (settings.base_url, *settings.trusted_base_urls)}


def _key(
    variable: str, field: str, settings: Settings, trusted: bool, environ: Mapping[str, str]
) -> str:
    if not variable:
        return settings.default_key() if trusted else ""
    return _KEYS.named(variable, field, trusted=trusted, environ=environ)


def _sampling(spec: spec_pb2.JudgeModel, settings: Settings) -> Sampling:
    extra = whole_numbers(plain_of(spec.extra_body))
    return Sampling(
        spec.temperature if spec.HasField("temperature") else settings.temperature,
        spec.max_completion_tokens or settings.max_completion_tokens,
        json.dumps(extra, sort_keys=True),
    )


def _price(spec: spec_pb2.JudgeModel, settings: Settings, model: str) -> Price | None:
    if spec.HasField("prompt_price"):
        return Price(spec.prompt_price, spec.completion_price)
    return Price(*settings.prices[model]) if model in settings.prices else None


def _label(settings: Settings, model: str, is_default: bool) -> str:
    if is_default and model == settings.model:
        return model or "default"
    return model if model in settings.prices else "other"
