"""One whole GRPO step, Podium against TRL: generation, reward, training, new weights."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from podium.core.statistics import paired_interval
from podium.local.models import resolve
from podium.types.v1 import trajectory_pb2
from podium_trainer.learner.products import Products, refusal

from bench.trainer import podium_side, sampler_side
from bench.trainer.bound import bound, sizes, work
from bench.trainer.layouts import off_policy
from bench.trainer.measure import (
    BFLOAT16_TOLERANCE,
    TOLERANCE,
    Service,
    UnequalError,
    gradient_difference,
    in_child,
    require_alike,
    require_equal,
    spread,
)
from bench.trainer.products import gflops
from bench.trainer.task import PROMPTS, Setup, reward

CURVE_STEPS = 10
TARGET_WHOLE = 4.0
TARGET_TRAINING = 3.0
SAMPLED_STEPS = 4
"""Steps' worth of completions by which the samples of the two sides are compared."""
SPECIAL_IDS = 17
"""SmolLM2's ids below it are no text: ends, paddings and the like."""
REWARD_TOLERANCE = 0.02
"""How far our mean reward of the last three steps may lie below TRL's: both are of 96 draws."""
_TARGET_MODULES = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")


def missing() -> str:
    """The name of what TRL needs and is not installed; empty when nothing is."""
    absent = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
    return ", ".join(absent)


@dataclass(frozen=True)
class _Run:
    """What one seed showed."""

    setup: Setup
    prompts: list[list[int]]
    equality: dict[str, float]
    ours: list[dict[str, float]]
    theirs: list[dict[str, float]]
    peak_mib: float


def measure(
    model: str, repeats: int, checkpointing: bool, seeds: int, products: str
) -> dict[str, Any]:
    """Steps of both sides in turn, for each seed: one to warm up, then at least `repeats`.

    Every step is one of the reward curve, the first as well.

    Raises:
        UnequalError: prompts, gradients, lengths or the distributions of samples differ.
    """
    runs = [_run(model, repeats, checkpointing, seed, products) for seed in range(seeds)]
    found = _summary(runs)
    return found | {"bound": _bound(runs[0], found)}


def _run(model: str, repeats: int, checkpointing: bool, seed: int, products: str) -> _Run:
    setup = Setup(
        model=str(resolve(model)),
        steps=max(CURVE_STEPS, repeats + 1),
        target_modules=_TARGET_MODULES,
        checkpointing=checkpointing,
        seed=seed,
        products=products,
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = _Sides(stack, setup, folder)
        equality = sides.check()
        ours: list[dict[str, float]] = []
        theirs: list[dict[str, float]] = []
        for step in range(setup.steps):
            turns = [(ours, sides.podium_step), (theirs, sides.trl_step)]
            for kept, turn in turns if step % 2 == 0 else reversed(turns):
                kept.append(turn(step))
        peak = sides.trainer.ask(("peak",))
    return _Run(setup, sides.prompts, equality, ours, theirs, peak)


class _Sides:
    """The three processes: sampler and trainer of Podium, and TRL."""

    def __init__(self, stack: ExitStack, setup: Setup, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self._sampler = stack.enter_context(Service(sampler_side.serve, setup))
        self.prompts: list[list[int]] = self._sampler.answer()
        self.trainer = stack.enter_context(Service(podium_side.serve, setup))
        self.trainer.answer()
        self._trl = stack.enter_context(Service(_serve_trl, setup))
        if self._trl.answer() != self.prompts:
            raise UnequalError("the two sides make other tokens of the prompts")

    def check(self) -> dict[str, float]:
        """Gradients and losses of one batch; then both are at the same fresh adapter."""
        self.trainer.ask(("save", str(self._folder / "fresh")))
        fresh = safetensors.torch.load_file(self._folder / "fresh" / "adapter_model.safetensors")
        generator = torch.Generator().manual_seed(1)
        # While B is zero, A has no gradient.
        moved = {
            name: torch.randn(weight.shape, generator=generator) * 0.01
            if "lora_B" in name
            else weight
            for name, weight in sorted(fresh.items())
        }
        self._adapter(moved)
        rng = np.random.default_rng(0)
        sampled = self._sampler.ask(("sample", -1))
        # Ratios of their present policy that no rounding moves over an edge of the clip.
        present = self._trl.ask(("logprobs", [[ids for ids, _ in group] for group in sampled]))
        sampled = [
            [
                (ids, off_policy(np.array(logprobs), rng).tolist())
                for (ids, _), logprobs in zip(group, found, strict=True)
            ]
            for group, found in zip(sampled, present, strict=True)
        ]
        # Far apart, so that what TRL adds to the deviation, 1e-4, and we, 1e-6, is nothing.
        rewards = rng.normal(0, 100, (len(PROMPTS), self._setup.group))
        files = [str(self._folder / name) for name in ("podium.safetensors", "trl.safetensors")]
        groups = self._groups(0, sampled, rewards.tolist())
        ours = self.trainer.ask(("gradient", groups, files[0]))
        theirs = self._trl.ask(("gradient", self._batch(sampled, rewards), files[1]))
        one, two = (safetensors.torch.load_file(file) for file in files)
        difference = gradient_difference(one, two)
        rounds = self._setup.products == Products.BFLOAT16
        allowed = BFLOAT16_TOLERANCE if rounds else TOLERANCE
        equality = {
            "gradient_difference": require_equal(
                "gradients of Podium and TRL", difference, allowed
            ),
            "loss_difference": require_equal(
                "losses of Podium and TRL", abs(ours - theirs) / abs(ours), allowed
            ),
        }
        self._adapter(fresh)
        equality |= self._same_samples()
        self._trl.ask_nothing(("train",))
        return equality

    def _same_samples(self) -> dict[str, float]:
        """That both sides sample the base model's own distribution, in standard errors.

        The one that ends its completions, or fills them, has another reward to learn from.
        """
        ours: list[list[list[int]]] = [[] for _ in PROMPTS]
        theirs: list[list[list[int]]] = [[] for _ in PROMPTS]
        for turn in range(SAMPLED_STEPS):
            sampled = self._sampler.ask(("sample", -2 - turn))
            for kept, found in zip(ours, sampled, strict=True):
                kept += [ids for ids, _ in found]
            for kept, completions in zip(theirs, self._trl.ask(("sample",)), strict=True):
                kept += completions
        scores = [
            [
                statistics.fmean(found)
                for group in self._trl.ask(("logprobs", side))
                for found in group
            ]
            for side in (ours, theirs)
        ]
        one, two = ([ids for group in side for ids in group] for side in (ours, theirs))
        if lengths := {len(ids) for ids in [*one, *two]} - {self._setup.completion}:
            raise UnequalError(f"completions have {sorted(lengths)} tokens too")

        def special(ids: list[int]) -> float:
            return sum(token < SPECIAL_IDS for token in ids) / len(ids)

        return {
            "reward_errors": require_alike(
                "rewards at the base model", [*map(reward, one)], [*map(reward, two)]
            ),
            "special_errors": require_alike(
                "shares of special tokens", [*map(special, one)], [*map(special, two)]
            ),
            "score_errors": require_alike("log-probs of what was sampled", *scores),
        }

    def podium_step(self, step: int) -> dict[str, float]:
        """One step; seconds by part, and the mean reward."""
        start = time.perf_counter()
        sampled = self._sampler.ask(("sample", step))
        generated = time.perf_counter()
        rewards = [[reward(ids) for ids, _ in group] for group in sampled]
        groups = self._groups(step, sampled, rewards)
        sent = time.perf_counter()
        metrics = self.trainer.ask(("train", groups))
        trained = time.perf_counter()
        version = self._folder / f"version-{step}"
        self.trainer.ask(("save", str(version)))
        self._sampler.ask(("load", str(version)))
        end = time.perf_counter()
        lengths = [len(ids) for group in sampled for ids, _ in group]
        return {
            "seconds": end - start,
            "generation": generated - start,
            "training": trained - sent,
            "new_weights": end - trained,
            "reward": statistics.fmean(value for group in rewards for value in group),
            "shortest": min(lengths),
            "longest": max(lengths),
            "tokens_packed": metrics["tokens_packed"],
            "tokens_flat": metrics["tokens_flat"],
            "logprob_difference_mean": metrics["logprob_difference_mean"],
        }

    def trl_step(self, step: int) -> dict[str, float]:
        """The same of TRL; its training part is all but generation."""
        found: dict[str, float] = self._trl.ask(("step",))
        return {**found, "training": found["seconds"] - found["generation"]}

    def _adapter(self, weights: dict[str, torch.Tensor]) -> None:
        file = str(self._folder / "weights.safetensors")
        safetensors.torch.save_file(weights, file)
        for side in (self.trainer, self._trl):
            side.ask(("weights", file))

    def _groups(
        self, step: int, sampled: list[sampler_side.Sampled], rewards: list[list[float]]
    ) -> list[bytes]:
        groups = []
        for index, (prompt, completions) in enumerate(zip(self.prompts, sampled, strict=True)):
            name = f"bench/s{step}/g{index}"
            group = trajectory_pb2.Group(id=name, job_id="bench", step=step + 1)
            for number, (ids, logprobs) in enumerate(completions):
                trajectory = group.trajectories.add(
                    id=f"{name}/t{number}",
                    group_id=name,
                    scenario_id=str(index),
                    attempt=number,
                    reward=rewards[index][number],
                    stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
                )
                record = trajectory.histories.add().tokens
                record.token_ids.extend([*prompt, *ids])
                record.logprobs.extend(logprobs)
                record.spans.add(
                    start=len(prompt),
                    length=len(ids),
                    policy="bench",
                    weights_version=max(step, 0),
                    temperature=1.0,
                    finish_reason=trajectory_pb2.FINISH_REASON_LENGTH,
                )
            groups.append(group.SerializeToString())
        return groups

    def _batch(self, sampled: list[sampler_side.Sampled], rewards: np.ndarray) -> dict[str, Any]:
        attempts = [
            (prompt, ids, logprobs)
            for prompt, group in zip(self.prompts, sampled, strict=True)
            for ids, logprobs in group
        ]
        return {
            "prompts": [prompt for prompt, _, _ in attempts],
            "completions": [ids for _, ids, _ in attempts],
            "logprobs": [logprobs for _, _, logprobs in attempts],
            "rewards": rewards.reshape(-1).tolist(),
        }


def _bound(run: _Run, found: dict[str, Any]) -> dict[str, Any]:
    """What this processor allows; its rates are measured now that nothing else runs."""
    setup = run.setup
    # The sampler's engine computes in float32, by oneDNN where that is faster.
    lowest = [kind for kind in (Products.TORCH, Products.ONEDNN) if not refusal(kind, "auto", 1)]
    rates = {kind: in_child(gflops, kind) for kind in {*lowest, Products(setup.products)}}
    return bound(
        work(
            sizes(Path(setup.model)),
            [len(prompt) for prompt in run.prompts],
            len(run.prompts) * setup.group * setup.completion,
            found["podium_tokens_packed"],
        ),
        max(rates[kind] for kind in lowest),
        rates[Products(setup.products)],
        found["trl"]["seconds"]["median"],
        found["trl"]["training"]["median"],
    )


def _serve_trl(connection: Connection, setup: Setup) -> None:
    # TRL takes long to load, and only its own process needs it.
    from bench.trainer import trl_side

    trl_side.serve(connection, setup)


def _summary(runs: list[_Run]) -> dict[str, Any]:
    setup = runs[0].setup
    lengths = {
        step[name]
        for run in runs
        for step in [*run.ours, *run.theirs]
        for name in ("shortest", "longest")
    }
    if lengths != {setup.completion}:
        raise UnequalError(f"completions have {sorted(lengths)} tokens, not {setup.completion}")

    def values(side: str, name: str) -> list[float]:
        # The first step of a run warms up.
        return [step[name] for run in runs for step in getattr(run, side)[1:]]

    def ratio(name: str) -> dict[str, Any]:
        pairs = zip(values("theirs", name), values("ours", name), strict=True)
        return spread([one / two for one, two in pairs])

    whole, training = ratio("seconds"), ratio("training")
    curves = {
        name: [[step["reward"] for step in getattr(run, side)] for run in runs]
        for name, side in (("podium", "ours"), ("trl", "theirs"))
    }
    ends = {
        name: [statistics.fmean(curve[-3:]) for curve in found] for name, found in curves.items()
    }
    differences = [one - two for one, two in zip(ends["podium"], ends["trl"], strict=True)]
    ahead = statistics.fmean(differences)
    settings = asdict(setup)
    del settings["model"], settings["seed"]
    return {
        "settings": settings,
        "seeds": len(runs),
        "trl_generation": "Transformers (use_vllm=False)",
        "prompt_tokens": [len(prompt) for prompt in runs[0].prompts],
        **{name: max(run.equality[name] for run in runs) for name in runs[0].equality},
        "podium": {
            name: spread(values("ours", name))
            for name in ("seconds", "generation", "training", "new_weights")
        },
        "podium_tokens_packed": runs[-1].ours[-1]["tokens_packed"],
        "podium_tokens_flat": runs[-1].ours[-1]["tokens_flat"],
        "podium_logprob_difference_mean": max(values("ours", "logprob_difference_mean")),
        "podium_trainer_peak_mib": max(run.peak_mib for run in runs),
        "trl": {
            name: spread(values("theirs", name)) for name in ("seconds", "generation", "training")
        },
        "trl_peak_mib": max(values("theirs", "peak_mib")),
        "whole_ratio": whole,
        "generation_ratio": ratio("generation"),
        "training_ratio": training,
        "reward_curves": curves,
        "reward_of_last_three": ends,
        "reward_ahead": ahead,
        "reward_ahead_interval": paired_interval(differences),
        "target_whole": TARGET_WHOLE,
        "met_whole": whole["median"] >= TARGET_WHOLE,
        "target_training": TARGET_TRAINING,
        "met_training": training["median"] >= TARGET_TRAINING,
        "reward_tolerance": REWARD_TOLERANCE,
        "met_reward": ahead >= -REWARD_TOLERANCE,
    }
