"""Records of a made-up job, as the controller would return them, for tests of what shows them."""

from __future__ import annotations

import copy
import math
import random
from functools import cache

from podium.core.contract import apply_defaults
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import spec_pb2, trajectory_pb2

START = 1_800_000_000


def job(job_id: str = "email-demo", steps: int = 18, done: int = 18) -> jobs.Job:
    """A job with `done` of its steps committed."""
    spec = spec_pb2.JobSpec(base_model="smollm2-135m-instruct", seed=7)
    spec.environment.name = "email_search"
    spec.training.steps = steps
    spec.evaluation.greedy = True
    apply_defaults(spec)
    made = jobs.Job(id=job_id, spec=spec, completed_steps=done, phase="train")
    made.state = jobs.JOB_STATE_SUCCEEDED if done == steps else jobs.JOB_STATE_RUNNING
    made.create_time.seconds = START - 5
    made.start_time.seconds = START
    if done == steps:
        made.end_time.seconds = START + 17 * steps
    return made


def steps(count: int = 18) -> list[jobs.Step]:
    """Steps whose reward rises as a logistic curve."""
    rng = random.Random(0)
    made = []
    for number in range(1, count + 1):
        level = 1 / (1 + math.exp(-(number - 8) / 2.2))
        step = jobs.Step(number=number, version=number, group_ids=[f"email-demo/s{number}/g0"])
        step.start_time.seconds = START + 17 * (number - 1)
        step.commit_time.seconds = START + 17 * number
        for name, value in {
            "reward_mean": 0.1 + 0.85 * level + rng.uniform(-0.04, 0.04),
            "success_mean": 0.05 + 0.9 * level + rng.uniform(-0.05, 0.05),
            "tokens_sampled": 5200 + rng.randrange(900),
            "tokens_per_second": 640,
            "staleness_max": 0,
            "train/loss": rng.uniform(-0.02, 0.02),
            "train/kl_reference": 0.05 * level,
            "train/entropy": 0.8 - 0.6 * level,
            "train/logprob_difference_mean": 0.04 + rng.uniform(-0.005, 0.005),
            "train/grad_norm": 1.4 - level + rng.uniform(0, 0.2),
            "train/clip_fraction": 0.002 + 0.003 * rng.random(),
            "seconds/collect": 8 + rng.random(),
            "seconds/judge": 0.1,
            "seconds/train": 6 + rng.random(),
            "seconds/publish": 0.5,
            "seconds/serve": 1.0 + rng.random() / 4,
        }.items():
            step.metrics[name] = value
        made.append(step)
    return made


def evaluation(version: int, mode: str, success: float, low: float, high: float) -> jobs.Evaluation:
    """One evaluation over 100 episodes."""
    made = jobs.Evaluation(
        version=version, mode=mode, episodes=100, success_low=low, success_high=high
    )
    made.metrics["success"] = success
    made.metrics["reward"] = success * 0.9 + 0.05
    made.time.seconds = START + 17 * version
    return made


def evaluations() -> list[jobs.Evaluation]:
    """Before and after, in both modes."""
    return [
        evaluation(0, "sampled", 0.06, 0.028, 0.125),
        evaluation(0, "greedy", 0.55, 0.452, 0.644),
        evaluation(18, "sampled", 0.96, 0.902, 0.984),
        evaluation(18, "greedy", 0.97, 0.915, 0.99),
    ]


def episode(
    version: int, index: int, *, valid: bool, hit: bool, success: bool
) -> trajectory_pb2.Trajectory:
    """One evaluation episode with a short conversation."""
    group = f"email-demo/v{version}-sampled/g{index}"
    made = trajectory_pb2.Trajectory(
        id=f"{group}/t0",
        group_id=group,
        scenario_id=f"heldout-{index}",
        reward=float(success),
        environment_reward=float(success),
        stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
        job_id="email-demo",
        step=version,
        evaluation_mode="sampled",
    )
    for name, value in (("valid_format", valid), ("search_hit", hit), ("success", success)):
        made.metrics[name] = float(value)
    made.metrics["turns"] = 2
    history = made.histories.add()
    said = "SEARCH from:dana budget\nSELECT 2" if valid else "Sure! <b>I</b> would look for it…"
    for role, text in (
        (trajectory_pb2.ROLE_SYSTEM, "You find one email. Answer with SEARCH, then SELECT."),
        (trajectory_pb2.ROLE_USER, f"Find Dana's email about the budget of project {index}."),
        (trajectory_pb2.ROLE_ASSISTANT, said),
        (trajectory_pb2.ROLE_USER, "3 results:\n1. …\n2. Dana: budget\n3. …"),
    ):
        history.messages.add(role=role, content=text)
    history.tokens.token_ids.extend([1, 2, 3])
    return made


def without_search(
    episodes: list[trajectory_pb2.Trajectory],
) -> list[trajectory_pb2.Trajectory]:
    """The same, of a task in which nothing is searched."""
    for each in episodes:
        del each.metrics["search_hit"]
    return episodes


def episodes(version: int, valid: int, hit: int, success: int) -> list[trajectory_pb2.Trajectory]:
    """100 episodes, the first `success` of the first `hit` of the first `valid` successful."""
    return copy.deepcopy(_episodes(version, valid, hit, success))


@cache
def _episodes(version: int, valid: int, hit: int, success: int) -> list[trajectory_pb2.Trajectory]:
    return [
        episode(version, index, valid=index < valid, hit=index < hit, success=index < success)
        for index in range(100)
    ]
