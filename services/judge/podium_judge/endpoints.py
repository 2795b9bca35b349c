"""Which judge model a RulerSpec means, and which API key may go to it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2

from podium_judge.judge_model import Endpoint
from podium_judge.settings import Settings

_KEY_VARIABLE = re.compile(r"PODIUM_JUDGE_KEY[A-Z0-9_]*")


def _normal(url: str) -> str:
    return url.rstrip("/")


def resolve_endpoint(
    spec: spec_pb2.RulerSpec,
    field: str,
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """The endpoint of `spec`, with the service's defaults for what it leaves empty.

    Whoever writes a job chooses the address, and must not learn the operator's keys
    by it: keys go only to the default address and to `trusted_base_urls`.

    Raises:
        InvalidArgumentError: no HTTP address, a key variable of another name or that
            is not set, or a key for an address that is not trusted.
    """
    base_url = _normal(spec.base_url or settings.base_url)
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise InvalidArgumentError(
            violations=[
                Violation(
                    f"{field}.base_url",
                    f"got {spec.base_url!r}; allowed is http(s)://host[:port]/…/v1 without a user",
                )
            ]
        )
    trusted = {_normal(url) for url in (settings.base_url, *settings.trusted_base_urls)}
    own_model = base_url == _normal(settings.base_url)
    return Endpoint(
        base_url,
        spec.model or (settings.model if own_model else ""),
        _key(spec.api_key_env, f"{field}.api_key_env", settings, base_url in trusted, environ),
    )


def _key(
    variable: str, field: str, settings: Settings, trusted: bool, environ: Mapping[str, str]
) -> str:
    if not variable:
        return settings.key.get_secret_value() if trusted else ""
    if not _KEY_VARIABLE.fullmatch(variable):
        problem = "allowed are names that begin with PODIUM_JUDGE_KEY"
    elif not trusted:
        problem = (
            "keys go only to the judge's default address and to those in "
            "PODIUM_JUDGE_TRUSTED_BASE_URLS, and base_url is neither"
        )
    elif not environ.get(variable):
        problem = "the judge service has no such environment variable"
    else:
        return environ[variable]
    raise InvalidArgumentError(violations=[Violation(field, f"got {variable!r}; {problem}")])
