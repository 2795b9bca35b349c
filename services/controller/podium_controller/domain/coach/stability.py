"""Findings about the policy: how far a step moves it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from podium.core import findings
from podium.core.means import mean_of
from podium.types.v1 import spec_pb2

from podium_controller.domain.coach.window import LATEST, Fall, Finding, Window, percent

# As the alerts PodiumKLRunaway, PodiumSamplerMismatch and PodiumEntropyCollapse.
_KL_NATS = 0.5
_KL_STEP_NATS = 1.0
_MISMATCH_NATS = 0.1
_ENTROPY_LEFT = 0.1
_ENTROPY_NATS = 0.3

_EFFECTIVE = 0.5
_GRADIENT_GROWTH = 5.0
_ENTROPY_GROWTH = 2.0
_ENTROPY_GAIN_NATS = 1.0
_SIGNALS = 2

_ENTROPY = "train/entropy"
_MISMATCH = "train/mismatch_kl"


def of_policy(window: Window) -> Iterator[Finding]:
    """What is wrong with a job's policy."""
    yield from _off_policy(window)
    if window.spec.training.loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
        return
    yield from _learning_rate(window)
    yield from _entropy(window)
    if fall := window.fall:
        yield Finding(
            findings.REWARD_FALLING,
            f"the mean reward fell from {fall.best:.3g} to {fall.last:.3g}",
            f"{_go_on_from(fall)} with a lower training.learning_rate or a"
            " training.loss.kl_coefficient, or look at whether judge or environment have changed",
            "the mean reward lies near its best of late",
        )


def _learning_rate(window: Window) -> Iterator[Finding]:
    signs, fall = _signs(window), window.fall
    fruitless = not (window.is_rising or window.is_solved)
    if not signs or not (fall or (fruitless and len(signs) >= _SIGNALS)):
        return
    training = window.spec.training
    if fall:
        signs.append(f"the mean reward fell from {fall.best:.3g} to {fall.last:.3g}")
    lower = (
        f"lower training.learning_rate ({training.learning_rate:g}), or raise"
        f" training.loss.kl_coefficient ({training.loss.kl_coefficient:g}) or training.warmup_steps"
    )
    yield Finding(
        findings.LEARNING_RATE_TOO_HIGH,
        f"steps move the policy too far: {', '.join(signs)}",
        f"{_go_on_from(fall)} and {lower}" if fall else lower,
        "steps move the policy less",
    )


def _signs(window: Window) -> list[str]:
    """What tells of steps that are too large."""
    found = []
    kl = window.now("train/kl_reference")
    if kl is not None and kl > _KL_NATS:
        found.append(f"the KL from the base model is {kl:.2g} nats a token")
    if leap := _leap(window):
        found.append(f"one step took it from {leap[0]:.2g} to {leap[1]:.2g}")
    norms = window.values("train/grad_norm")
    if len(norms) >= 2 * LATEST:
        first, last = median(norms[: max(LATEST, len(norms) // 4)]), median(norms[-LATEST:])
        least = max(_GRADIENT_GROWTH * first, window.spec.training.max_grad_norm)
        if last > least:
            found.append(f"the gradient's norm went from {first:.2g} to {last:.2g}")
    entropies = window.values(_ENTROPY)
    if len(entropies) >= 2 * LATEST:
        first, last = mean_of(entropies[:LATEST]), mean_of(entropies[-LATEST:])
        if last > max(_ENTROPY_GROWTH * first, first + _ENTROPY_GAIN_NATS):
            found.append(f"the entropy went from {first:.2g} to {last:.2g} nats")
    drift, age = window.now(_MISMATCH), _staleness(window)
    if drift is not None and drift > _MISMATCH_NATS and 1 <= age < 2:
        found.append(f"one step moved the policy by {drift:.2g} nats a token")
    return found


def _leap(window: Window) -> tuple[float, float] | None:
    """The KL from the base model before and after the step that raised it most, where that is
    more than small steps do: of a policy that has collapsed no gradient grows any more.
    """
    leaps = list(pairwise(window.values("train/kl_reference")))
    most = max(leaps, key=lambda leap: leap[1] - leap[0], default=(0.0, 0.0))
    return most if most[1] - most[0] > _KL_STEP_NATS else None


def _entropy(window: Window) -> Iterator[Finding]:
    means = window.smooth(_ENTROPY)
    if len(means) <= LATEST or window.is_solved or window.is_rising:
        return
    if means[-1] < min(_ENTROPY_LEFT * max(means), _ENTROPY_NATS):
        training = window.spec.training
        yield Finding(
            findings.ENTROPY_COLLAPSE,
            f"the policy has all but stopped to explore: its entropy went from {max(means):.2g} to"
            f" {means[-1]:.2g} nats a token, and the reward does not rise",
            f"lower training.learning_rate ({training.learning_rate:g}), or raise"
            f" training.loss.epsilon_high, training.loss.kl_coefficient or"
            f" rollout.sampling.temperature ({window.spec.rollout.sampling.temperature:g})",
            "the policy explores again",
        )


def _off_policy(window: Window) -> Iterator[Finding]:
    drift, age = window.now(_MISMATCH), _staleness(window)
    effective = window.now("train/effective_sample_fraction")
    apart = drift is not None and drift > _MISMATCH_NATS
    thin = effective is not None and effective < _EFFECTIVE
    if age >= 2 and (apart or thin) and not window.is_rising:
        told = f"their KL is {drift:.2g} nats a token" if drift is not None else ""
        if effective is not None:
            told += f"{', and ' if told else ''}{percent(effective)} of them count"
        yield Finding(
            findings.STALENESS_TOO_LARGE,
            f"tokens are up to {age:.0f} versions old when they train, and no longer what the"
            f" policy would say: {told}",
            f"lower rollout.max_staleness ({window.spec.rollout.max_staleness}), or set"
            " training.loss.importance_cap",
            "what trains is near the policy again",
        )
    if age == 0 and apart:
        yield Finding(
            findings.SAMPLER_MISMATCH,
            f"trainer and sampler disagree about the same weights: their KL is {drift:.2g} nats a"
            " token",
            "give both one type (training.dtype, and `dtype` of the pool), or set"
            " training.loss.importance_cap",
            "trainer and sampler agree again",
        )


def _staleness(window: Window) -> float:
    """The mean of the latest steps' greatest staleness; -1 where none tells."""
    found = window.now("staleness_max")
    return -1.0 if found is None else found


def _go_on_from(fall: Fall) -> str:
    return f"go on from version {fall.version} (fork.model, fork.version)"
