"""Findings about attempts: those that raise, are cut, or come to no end."""

from __future__ import annotations

from collections.abc import Iterator

from podium.core import findings

from podium_controller.domain.coach.groups import lost_variance, without_variance
from podium_controller.domain.coach.window import LATEST, PATIENCE, Finding, Window, percent

# As the alert PodiumEpisodesFailing.
_FAILED = 0.5
_CUT = 0.5
_UNFINISHED = 0.8
_NEARLY_ALL = 0.9
# By how much the latest steps must be better than those before for a policy that learns it.
_BETTER = 0.05
_NO_SUCCESS = 0.05

_ALL = "trajectories"
_BY_TOKENS = "trajectories_cut"
_BY_CONTEXT = "trajectories_out_of_context"


def of_attempts(window: Window) -> Iterator[Finding]:
    """What is wrong with a job's attempts."""
    latest = window.newest(LATEST)
    if len(latest) < LATEST:
        return
    failed = latest.share("trajectories_failed", _ALL)
    if failed > _FAILED:
        yield Finding(
            findings.EPISODES_FAILING,
            f"the environment or the agent raised in {percent(failed)} of the attempts of the last"
            f" {len(latest)} steps",
            "read the exceptions with `podium trajectory list JOB` and mend the environment; for"
            " timeouts raise rollout.episode.step_timeout_seconds",
            "most attempts end without an error again",
        )
    # Of a policy that has lost what it could, no setting of its attempts is the cause.
    if window.is_solved or window.is_rising or lost_variance(window):
        return
    yield from _cut(window)
    yield from _unfinished(window)


def _lasting(window: Window, share: float, *parts: str) -> float:
    """The share of attempts that the parts are, where it is large for long enough; else 0."""
    latest, recent = window.latest(), window.newest(PATIENCE)
    now = sum(latest.share(part, _ALL) for part in parts)
    if latest.is_enough and now > _NEARLY_ALL:
        return min(now, 1.0)
    # A policy that learns to be brief begins with answers that are cut.
    now = sum(window.newest(LATEST).share(part, _ALL) for part in parts)
    lately = sum(recent.share(part, _ALL) for part in parts)
    if len(recent) < PATIENCE or now < lately - _BETTER:
        return 0.0
    return lately if min(now, lately) > share else 0.0


def _cut(window: Window) -> Iterator[Finding]:
    share = _lasting(window, _CUT, _BY_TOKENS, _BY_CONTEXT)
    if not share:
        return
    latest, rollout = window.newest(LATEST), window.spec.rollout
    if latest.total(_BY_CONTEXT) > latest.total(_BY_TOKENS):
        by = "the model's context"
        change = (
            "serve the model with a longer context (`maxModelLen` of the pool), lower"
            f" rollout.episode.max_turns ({rollout.episode.max_turns}), or have the environment"
            " say less"
        )
    elif window.is_client_driven:
        by = "the max_tokens of the client's requests"
        change = "raise these, or ask for short answers in the prompt"
    else:
        by = "rollout.sampling.max_tokens"
        change = (
            f"raise rollout.sampling.max_tokens ({rollout.sampling.max_tokens}), or ask for short"
            " answers in the prompt"
        )
    yield Finding(
        findings.ANSWERS_CUT,
        f"{percent(share)} of the attempts were cut by {by}, and the reward does not rise",
        change,
        "most answers come to their end again",
    )


def _unfinished(window: Window) -> Iterator[Finding]:
    share = _lasting(window, _UNFINISHED, "trajectories_unfinished")
    if not share:
        return
    # A game may be meant to be played to its last turn: one that teaches nothing is not.
    latest = window.newest(LATEST)
    success = latest.values("success_mean")
    fruitless = max(success) <= _NO_SUCCESS if success else without_variance(latest) > 0.5
    if fruitless:
        episode = window.spec.rollout.episode
        yield Finding(
            findings.EPISODES_UNFINISHED,
            f"{percent(share)} of the attempts used up their turns or their time without an"
            " action that ends the task",
            f"raise rollout.episode.max_turns ({episode.max_turns}) or"
            f" rollout.episode.timeout_seconds ({episode.timeout_seconds:g}), set"
            " rollout.episode.tool_format to what the model writes, or show a valid action in the"
            " prompt",
            "attempts come to an end again",
        )
