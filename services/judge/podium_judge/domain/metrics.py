"""Prometheus metrics of the judge.

The label `model` is a name that the operator gave: the default model, or one in the
price list; all others are `other`, so that jobs cannot make series.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

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
TOKENS = Counter("podium_judge_tokens_total", "Tokens of judge models by kind.", ["kind", "model"])
COST = Counter(
    "podium_judge_cost_total",
    "Cost of those tokens and of priced calls of scorers over HTTP, in the unit of the prices; "
    "models without a price are left out.",
    ["model"],
)
SCORE_SECONDS = Histogram(
    "podium_judge_score_seconds",
    "Time to score one group.",
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320),
)
PARSE_FAILURES = Counter(
    "podium_judge_parse_failures_total", "Answers of judge models that could not be used."
)
OPINIONS = Counter(
    "podium_judge_opinions_total",
    "Judges asked about a group, by seat (panel, fallback) and outcome: scored, useless, refused, "
    "unavailable, misconfigured.",
    ["seat", "outcome"],
)
QUESTIONS = Counter(
    "podium_judge_questions_total",
    "Questions by where the answer came from: asked, cached, or joined to the same question in "
    "flight.",
    ["source"],
)
AGREEMENT = Histogram(
    "podium_judge_agreement_ratio",
    "Kendall's W of the judges of a group.",
    buckets=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
)
TRIMMED = Counter("podium_judge_prompts_trimmed_total", "Prompts that attempts did not fit.")
POSITION_SCORE = Histogram(
    "podium_judge_position_score_ratio",
    "Scores by the fifth of the prompt that the attempt stood in, from 1; unbiased judges give "
    "all fifths the same mean.",
    ["model", "fifth"],
    buckets=(0.2, 0.4, 0.6, 0.8, 1.0),
)
ORDER_DIFFERENCE = Histogram(
    "podium_judge_order_difference_ratio",
    "Of judges that are asked in both orders, how far the two scores of the same attempt differ, "
    "on average over the group.",
    ["model"],
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0),
)
POSITION_SLOPE = Gauge(
    "podium_judge_position_slope",
    "Score that an attempt gains by standing last instead of first, over all groups so far.",
    ["model"],
)
POSITION_Z = Gauge(
    "podium_judge_position_z",
    "That slope in standard deviations of an unbiased judge's; beyond 3 the judge favours places.",
    ["model"],
)
