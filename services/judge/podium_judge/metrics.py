"""Prometheus metrics of the judge."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

GROUPS = Counter(
    "podium_judge_groups_total",
    "Groups by outcome: scored, or the reason that they were skipped for.",
    ["outcome"],
)
MODEL_CALLS = Counter(
    "podium_judge_model_calls_total",
    "HTTP requests to judge models by outcome: ok, busy, timeout, unreachable, refused "
    "(key, address or model name), rejected (this request), malformed.",
    ["outcome"],
)
TOKENS = Counter("podium_judge_tokens_total", "Tokens of judge models by kind.", ["kind"])
SCORE_SECONDS = Histogram(
    "podium_judge_score_seconds",
    "Time to score one group.",
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320),
)
PARSE_FAILURES = Counter(
    "podium_judge_parse_failures_total", "Answers of judge models that could not be used."
)
