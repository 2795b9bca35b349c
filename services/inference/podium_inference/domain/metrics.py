"""The inference service's own Prometheus metrics; vLLM's stand beside them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

GENERATIONS = Counter("podium_inference_generations_total", "Generations.", ["outcome"])
SCORINGS = Counter(
    "podium_inference_scorings_total",
    "Sequences scored for a student, as its teacher.",
    ["outcome"],
)
TOKENS = Counter("podium_inference_tokens_total", "Tokens by kind.", ["kind"])
RUNNING = Gauge("podium_inference_running", "Generations running or queued in the engine.")
WAITING = Gauge("podium_inference_waiting", "Generations held back until their weights are there.")
POLICIES = Gauge("podium_inference_policies", "Policy versions that are served.")
NEWEST_VERSION = Gauge(
    "podium_inference_weights_version", "Newest version served of a policy.", ["policy"]
)
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
LOAD_SECONDS = Histogram(
    "podium_inference_policy_load_seconds", "Time to fetch and serve a version.", buckets=_SECONDS
)
PAUSE_SECONDS = Histogram(
    "podium_inference_policy_pause_seconds",
    "Time that requests were held back for a change of weights.",
    buckets=_SECONDS,
)
MOVED = Counter(
    "podium_inference_requests_moved_total",
    "Requests that went on under newer weights, which came in flight.",
)
LOAD_FAILURES = Counter(
    "podium_inference_policy_load_failures_total", "Versions not loaded.", ["reason"]
)
CAPTURED_CALLS = Counter(
    "podium_inference_captured_calls_total", "Calls of the OpenAI API captured for rollouts."
)
DROPPED_CALLS = Counter(
    "podium_inference_captured_calls_dropped_total",
    "Captured calls dropped before they were taken.",
)
LOST_CAPTURES = Counter(
    "podium_inference_captures_lost_total",
    "Rollouts whose calls were asked for and had died with a process in part.",
)
CAPTURED_TOKENS = Gauge("podium_inference_captured_tokens", "Tokens of captured calls in memory.")
RENDERS = Counter(
    "podium_inference_renders_total",
    "Conversations rendered, by how much of them: first (no turn was sampled), recent, whole; and"
    " turns of demonstrations.",
    ["kind"],
)
RENDER_MISMATCHES = Counter(
    "podium_inference_render_mismatches_total",
    "Times the recent messages alone were rendered otherwise than with the whole conversation.",
)
