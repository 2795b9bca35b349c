"""Scorers and their judges: what of them contradicts itself, whatever service reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import urlsplit

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

OWN_PARAMETERS = (
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "response_format",
    "stream",
    "temperature",
)
"""Of a request to a judge: set by fields of their own, or by the judge service."""

OWN_HTTP_FIELDS = ("group_id", "messages", "model", "scenario", "task", "trajectories")
"""Of a request to a scorer over HTTP: set by the judge service."""

JudgedSpec = spec_pb2.RulerSpec | spec_pb2.RubricSpec
"""What names judge models; its fields about them are the same in both."""

PartField = Literal["weighted", "ruler", "rubric", "http"]

PART_FIELDS: Mapping[int, PartField] = {
    spec_pb2.SCORER_KIND_WEIGHTED: "weighted",
    spec_pb2.SCORER_KIND_RULER: "ruler",
    spec_pb2.SCORER_KIND_RUBRIC: "rubric",
    spec_pb2.SCORER_KIND_HTTP: "http",
}
"""Which part of a Scorer belongs to its kind."""

_ADDRESS = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?"
)
_SHORT_FORM = ("base_url", "model", "api_key_env")


def judged_spec(scorer: spec_pb2.Scorer) -> JudgedSpec | None:
    """What names the judge models of a scorer; None where there are none."""
    match scorer.kind:
        case spec_pb2.SCORER_KIND_RULER:
            return scorer.ruler
        case spec_pb2.SCORER_KIND_RUBRIC:
            return scorer.rubric
    return None


def asks_others(reward: spec_pb2.RewardSpec) -> bool:
    """Whether the judge service asks anybody else about a reward: a judge model, a scorer."""
    asking = (
        spec_pb2.SCORER_KIND_RULER,
        spec_pb2.SCORER_KIND_RUBRIC,
        spec_pb2.SCORER_KIND_HTTP,
    )
    return any(scorer.kind in asking for scorer in reward.scorers)


def scorer_violations(scorer: spec_pb2.Scorer, path: str) -> list[Violation]:
    """Every contradiction in a scorer's part of its own; `path` is where the scorer stands.

    What only the judge service knows is left to it: its keys, trusted addresses and prices.
    """
    match scorer.kind:
        case spec_pb2.SCORER_KIND_RULER:
            return ruler_violations(scorer.ruler, f"{path}.ruler")
        case spec_pb2.SCORER_KIND_RUBRIC:
            return criteria_violations(scorer.rubric, f"{path}.rubric") + ruler_violations(
                scorer.rubric, f"{path}.rubric"
            )
        case spec_pb2.SCORER_KIND_HTTP:
            return http_violations(scorer.http, f"{path}.http")
    return []


def ruler_violations(spec: JudgedSpec, path: str) -> list[Violation]:
    """Every contradiction in what names judges; `path` is where it stands."""
    found = panel_violations(spec, path)
    for judge, where in (*judges_of(spec, path), *fallbacks_of(spec, path)):
        found += judge_violations(judge, where)
    return found


def judges_of(spec: JudgedSpec, path: str) -> list[tuple[spec_pb2.JudgeModel, str]]:
    """The judges and where each stands; of the short form, the only one."""
    if not spec.judges:
        only = spec_pb2.JudgeModel(
            base_url=spec.base_url, model=spec.model, api_key_env=spec.api_key_env
        )
        return [(only, path)]
    return [(judge, f"{path}.judges[{n}]") for n, judge in enumerate(spec.judges)]


def fallbacks_of(spec: JudgedSpec, path: str) -> list[tuple[spec_pb2.JudgeModel, str]]:
    """The fallbacks and where each stands."""
    return [(judge, f"{path}.fallbacks[{n}]") for n, judge in enumerate(spec.fallbacks)]


def panel_violations(spec: JudgedSpec, path: str) -> list[Violation]:
    """As `ruler_violations`, without what is wrong with one judge alone."""
    return [Violation(f"{path}.{name}", why) for name, why in _panel(spec)]


def judge_violations(spec: spec_pb2.JudgeModel, path: str) -> list[Violation]:
    """As `ruler_violations`, of one judge."""
    return [Violation(f"{path}.{name}", why) for name, why in _judge(spec)]


def criteria_violations(spec: spec_pb2.RubricSpec, path: str) -> list[Violation]:
    """What is wrong with a rubric's criteria beyond their fields' own rules."""
    if not spec.criteria:
        return [Violation(f"{path}.criteria", "got none; allowed is at least one")]
    names = [each.name for each in spec.criteria]
    return [
        Violation(f"{path}.criteria[{n}].name", f"got {name!r}, which another one has")
        for n, name in enumerate(names)
        if name in names[:n]
    ]


def http_violations(spec: spec_pb2.HttpScorerSpec, path: str) -> list[Violation]:
    """Every contradiction in a scorer over HTTP."""
    return [Violation(f"{path}.{name}", why) for name, why in _http(spec)]


def is_judge_address(url: str) -> bool:
    """Whether it is `http(s)://host[:port]/path` and nothing else.

    The judge service adds a path of its own. A query, a fragment, a user or an escape would
    let a job choose another.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None:
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    segments = parts.path.split("/")
    return bool(host) and port != 0 and not {".", ".."} & set(segments)


def wrong_api_address(url: str) -> str:
    """What is said of a model's address that is none."""
    return (
        f"got {url!r}; allowed is http(s)://host[:port]/…/v1 without a user, a query or a fragment"
    )


def _panel(spec: JudgedSpec) -> Iterator[tuple[str, str]]:
    if spec.judges:
        for name in _SHORT_FORM:
            if getattr(spec, name):
                yield name, "belongs to the only judge; not allowed with `judges`"
    most = max(1, len(spec.judges)) + len(spec.fallbacks)
    if spec.quorum > most:
        yield (
            "quorum",
            f"got {spec.quorum}; allowed is at most {most}, the judges and fallbacks",
        )


def _judge(spec: spec_pb2.JudgeModel) -> Iterator[tuple[str, str]]:
    if spec.base_url and not is_judge_address(spec.base_url):
        yield "base_url", wrong_api_address(spec.base_url)
    for name in OWN_PARAMETERS:
        if name in spec.extra_body.fields:
            yield f"extra_body.{name}", "is set by the judge service itself"
    reads, writes = spec.HasField("prompt_price"), spec.HasField("completion_price")
    if reads != writes:
        missing, there = ("completion", "prompt") if reads else ("prompt", "completion")
        yield f"{missing}_price", f"is missing beside {there}_price"


def _http(spec: spec_pb2.HttpScorerSpec) -> Iterator[tuple[str, str]]:
    if not is_judge_address(spec.base_url):
        yield (
            "base_url",
            f"got {spec.base_url!r}; allowed is http(s)://host[:port]/… without a user, a query"
            " or a fragment",
        )
    if spec.model and spec.protocol not in (
        spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY,
        spec_pb2.HTTP_SCORER_PROTOCOL_POOLING,
    ):
        yield "model", f"got {spec.model!r}; allowed is none with HTTP_SCORER_PROTOCOL_SCORE"
    if spec.HasField("class_index") and spec.protocol != spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY:
        yield "class_index", "is allowed with HTTP_SCORER_PROTOCOL_CLASSIFY alone"
    for name in OWN_HTTP_FIELDS:
        if name in spec.extra_body.fields:
            yield f"extra_body.{name}", "is set by the judge service itself"
