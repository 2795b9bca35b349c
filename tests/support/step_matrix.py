"""Every option of a step, as cases of which one process and two must make the same.

    torchrun --nproc-per-node 2 -m support.step_matrix MODELS FOLDER

takes all cases' steps with the models that `build` wrote into MODELS, and writes what became of
each into FOLDER.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from podium.core.contract import complete_training, training_violations
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.families import build_mixture
from support.near_policy import PROMPT, near_groups
from support.pairwise import Case, Covering
from support.tiny_policy import build_small_llama

STEPS = 2

FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "objective": {
        "clipped": {"epsilon": 0.1, "epsilon_high": 0.15},
        "cispo": {"objective": "OBJECTIVE_CISPO", "epsilon": 0.1, "epsilon_high": 0.15},
        "gspo": {"objective": "OBJECTIVE_GSPO", "epsilon": 0.05, "epsilon_high": 0.08},
        "reinforce": {"objective": "OBJECTIVE_REINFORCE"},
        "supervised": {"objective": "OBJECTIVE_SUPERVISED"},
    },
    "old": {"sampler": {}, "trainer": {"old_policy": "OLD_POLICY_TRAINER"}},
    "level": {
        "token": {},
        "sequence": {"ratio_level": "RATIO_LEVEL_SEQUENCE"},
        "average": {"ratio_level": "RATIO_LEVEL_AVERAGE"},
        "geometric": {"ratio_level": "RATIO_LEVEL_GEOMETRIC_AVERAGE"},
    },
    "kl": {
        "none": {},
        "k3": {"kl_coefficient": 0.1},
        "k3+": {"kl_coefficient": 0.1, "kl_estimator": "KL_ESTIMATOR_K3_PLUS"},
        "k2 weighted": {
            "kl_coefficient": 0.1,
            "kl_estimator": "KL_ESTIMATOR_K2",
            "kl_importance_weighted": True,
        },
        "k1 shaping": {
            "kl_coefficient": 0.1,
            "kl_estimator": "KL_ESTIMATOR_K1",
            "kl_placement": "KL_PLACEMENT_ADVANTAGE",
        },
    },
    "sampler": {
        "trusted": {},
        "capped": {"importance_cap": 1.1},
        "masked": {"sequence_ratio_min": 0.95, "sequence_ratio_max": 1.05},
    },
    "advantage": {
        "std": {},
        "none": {"advantage": "ADVANTAGE_KIND_NONE"},
        "batch": {"advantage": "ADVANTAGE_KIND_BATCH", "deviation": "DEVIATION_SAMPLE"},
    },
    "aggregation": {
        "token": {},
        "sequence": {"aggregation": "AGGREGATION_KIND_SEQUENCE"},
        "constant": {"aggregation": "AGGREGATION_KIND_CONSTANT", "aggregation_tokens": 20},
    },
    "turns": {
        "none": {},
        "to go": {"turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO", "turn_discount": 0.5},
        "added": {"turn_advantage": "TURN_ADVANTAGE_ADDED", "turn_discount": 0.5},
    },
    "teacher": {
        "none": {},
        "alone": {"teacher_coefficient": 0.5},
        "beside": {"teacher_coefficient": 0.5, "reward_coefficient": 2},
    },
    "overlong": {
        "trains": {},
        "masked": {"overlong": "OVERLONG_MASK"},
        "penalized": {"overlong": "OVERLONG_PENALIZE", "overlong_penalty": 0.5},
    },
    "updates": {
        "one": {},
        "parts": {"mini_batches": 3},
        "epochs": {"epochs": 2},
        "both": {"mini_batches": 2, "epochs": 2},
    },
    "activations": {"kept": {}, "again": {"gradient_checkpointing": True}},
    "trains": {
        "lora": {"lora": {"rank": 4}},
        "full": {"trainable": "TRAINABLE_KIND_FULL"},
        "experts": {"lora": {"rank": 4, "target_modules": ["q_proj", "experts"]}},
    },
    "dtype": {
        "float32": {"dtype": "COMPUTE_DTYPE_FLOAT32"},
        "bfloat16": {"dtype": "COMPUTE_DTYPE_BFLOAT16"},
    },
}
"""Factor to level to what it says in the specification; those of the loss come first."""

CLOSELY = ("trains", "dtype")
"""What every option meets in each combination, on one process and on two."""

_LOSS = tuple(FACTORS)[: tuple(FACTORS).index("updates")]


def training_of(case: Mapping[str, str]) -> spec_pb2.TrainingSpec:
    """The completed specification."""
    loss: dict[str, Any] = {}
    rest: dict[str, Any] = {"steps": 10, "learning_rate": 2e-3, "weight_decay": 0.1}
    for factor, level in case.items():
        (loss if factor in _LOSS else rest).update(FACTORS[factor][level])
    return complete_training(spec_pb2.TrainingSpec(loss=loss, **rest))


def covering() -> Covering:
    """Of what a job may ask for."""
    return Covering(
        {factor: list(levels) for factor, levels in FACTORS.items()},
        lambda case: not training_violations(training_of(case), ""),
        deciding=("objective", "old"),
        closely=CLOSELY,
    )


@cache
def cases() -> dict[str, Case]:
    """By a name that says where they leave the defaults."""
    return {
        ", ".join(
            f"{factor} {level}"
            for factor, level in case.items()
            if level != next(iter(FACTORS[factor]))
        ): case
        for case in covering().cases()
    }


@cache
def few() -> frozenset[str]:
    """Names of cases in which each option is taken once at least."""
    chosen: set[str] = set()
    met: set[tuple[str, str]] = set()
    # In float32 two processes are compared more closely.
    order = sorted(cases().items(), key=lambda each: each[1]["dtype"] == "bfloat16")
    for name, case in order:
        if not met.issuperset(case.items()):
            chosen.add(name)
            met.update(case.items())
    return frozenset(chosen)


@cache
def step_of(model: Path, step: int) -> list[trajectory_pb2.Group]:
    """Groups with everything that options ask for: turns, a teacher, cut attempts, histories."""
    groups = near_groups(model, step, groups=4, attempts=3)
    more = near_groups(model, 10 + step, groups=4, attempts=3)
    for g, (found, other) in enumerate(zip(groups, more, strict=True)):
        for i, (attempt, extra) in enumerate(
            zip(found.trajectories, other.trajectories, strict=True)
        ):
            record = attempt.histories[0].tokens
            # Two turns, and a token between them that nobody sampled.
            del record.spans[:], record.logprobs[5]
            record.spans.add(start=PROMPT, length=5, temperature=1)
            record.spans.add(start=PROMPT + 6, length=6, temperature=1)
            attempt.transitions.add(reward=0.3 * i)
            attempt.transitions.add(reward=0.2 * g)
            if i == 1:
                attempt.histories.append(extra.histories[0])
            if i == 2 and g % 2:
                record.spans[1].finish_reason = trajectory_pb2.FINISH_REASON_LENGTH
            for history in attempt.histories:
                said = history.tokens
                said.teacher_logprobs.extend(value * 0.9 for value in said.logprobs)
    return groups


def build(folder: Path) -> Path:
    """Writes the models: a small Llama, and a small mixture whose experts train."""
    build_small_llama(folder / "dense")
    build_mixture("qwen3_moe", folder / "mixture")
    return folder


def taken(models: Path, case: Case, ranks: Any = None) -> dict[str, Any]:
    """Weights at the start and after the steps, and what each step told."""
    from podium_trainer.learner.parallel import whole
    from podium_trainer.learner.session import Compute, JobConfig, Session

    model = models / ("mixture" if case["trains"] == "experts" else "dense")
    compute = Compute(row_tokens=60, bfloat16="native")
    config = JobConfig("job", "small", training_of(case), 3)
    session = Session(config, model, "", compute, ranks=ranks)
    start = whole(session.policy.masters.weights)
    metrics = [
        session.train(step_of(model, step), lambda: False).metrics for step in range(1, STEPS + 1)
    ]
    return {"start": start, "end": whole(session.policy.masters.weights), "metrics": metrics}


def main(models: Path, folder: Path, wanted: Collection[str]) -> None:
    """One of several processes: takes the cases of these names."""
    from podium_trainer.learner.parallel import join, leave

    torch.set_num_threads(1)
    ranks = join(120)
    for number, (name, case) in enumerate(cases().items()):
        if name not in wanted:
            continue
        try:
            result = taken(models, case, ranks)
        except Exception:
            # The processes may be out of step: what comes after says nothing.
            (folder / f"{number}-{ranks.rank}.txt").write_text(traceback.format_exc())
            raise
        if ranks.rank == 0:
            torch.save(result, folder / f"{number}.pt")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), cases() if sys.argv[3:] == ["all"] else few())
