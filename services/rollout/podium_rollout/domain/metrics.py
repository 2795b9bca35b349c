"""The rollout service's Prometheus metrics.

The label `environment` is the name of a built-in environment; all that jobs serve themselves
are `other`, so that their names cannot make series.
"""

from __future__ import annotations

import math

from podium.environments.catalog import builtin_names
from podium.types.v1 import spec_pb2
from prometheus_client import Counter, Gauge, Histogram

EPISODES = Counter(
    "podium_rollout_episodes_total", "Episodes by how they ended.", ["environment", "outcome"]
)
TURNS = Histogram(
    "podium_rollout_turns",
    "Assistant turns of an episode.",
    ["environment"],
    buckets=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128),
)
TOKENS = Counter("podium_rollout_tokens_total", "Tokens recorded.", ["kind"])
EPISODE_SECONDS = Histogram(
    "podium_rollout_episode_seconds",
    "Time of an episode.",
    ["environment"],
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
)
HISTORY_SPLITS = Counter(
    "podium_rollout_history_splits_total",
    "Times a template could not be continued token for token, or its tools changed.",
)
CONTEXT_CAPPED = Counter(
    "podium_rollout_context_capped_total", "Turns that had less room than max_tokens."
)
ATTEMPTS_BEGUN_AGAIN = Counter(
    "podium_rollout_attempts_begun_again_total",
    "Attempts that began again, for a call of the policy or the environment was lost.",
)
MALFORMED_CALLS = Counter(
    "podium_rollout_malformed_calls_total", "Tool calls that could not be read.", ["environment"]
)
ENVIRONMENT_REWARD = Histogram(
    "podium_rollout_environment_reward",
    "Sum of an episode's environment rewards.",
    ["environment"],
    buckets=(-1, -0.5, -0.1, 0, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 2, 5, 10, 100),
)
# What may be below zero has no sum in Prometheus' client: a counter is not to fall.
ENVIRONMENT_REWARDS = Counter(
    "podium_rollout_environment_rewards_total",
    "Environment rewards added up, those of episodes above zero and those below it apart.",
    ["environment", "sign"],
)
GROUPS_IN_FLIGHT = Gauge("podium_rollout_groups_in_flight", "Groups being collected.")
EPISODES_IN_FLIGHT = Gauge("podium_rollout_episodes_in_flight", "Episodes running.")
EPISODES_WAITING = Gauge(
    "podium_rollout_episodes_waiting",
    "Episodes waiting for a session or a place of their environment.",
)
SESSIONS_RESUMED = Counter(
    "podium_rollout_sessions_resumed_total",
    "Sessions of remote environments that were taken up again after a connection broke.",
)
PLAYER_CALLS = Counter(
    "podium_rollout_player_calls_total",
    "Calls of models that play beside the policy, by how they ended.",
    ["outcome"],
)
PLAYER_TOKENS = Counter(
    "podium_rollout_player_tokens_total",
    "Tokens of models that play beside the policy, as their APIs count them.",
    ["kind"],
)

WORKERS_DIED = Counter(
    "podium_rollout_workers_died_total",
    "Worker processes that died while the service ran; each is started anew.",
)


def lost(environment: spec_pb2.EnvironmentSpec) -> None:
    """Counts an episode that lost its environment for good as one that failed."""
    EPISODES.labels(label_of(environment), "failed").inc()


def rewarded(label: str, reward: float) -> None:
    """Tells of an episode's reward; a sum that is no number any more is no one's mean."""
    if math.isfinite(reward):
        ENVIRONMENT_REWARD.labels(label).observe(reward)
        # Both, as a mean subtracts one from the other.
        ENVIRONMENT_REWARDS.labels(label, "positive").inc(max(reward, 0.0))
        ENVIRONMENT_REWARDS.labels(label, "negative").inc(max(-reward, 0.0))


def label_of(environment: spec_pb2.EnvironmentSpec) -> str:
    """The environment's name in metrics, one of few."""
    known = not environment.address and environment.name in builtin_names()
    return environment.name if known else "other"
