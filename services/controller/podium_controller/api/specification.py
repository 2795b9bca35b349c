"""Fills in a job's specification and checks what no single field can say of itself."""

from __future__ import annotations

import math

from podium.core.chat_templates import violations_of as template_violations
from podium.core.contract import (
    apply_defaults,
    client_rollout_violations,
    complete_rollout,
    complete_training,
    rollout_violations,
    scorer_violations,
    tracking_violations,
    training_violations,
)
from podium.core.contract.judging import PART_FIELDS
from podium.core.contract.players import AGENT, model_player_violations
from podium.core.errors import Violation
from podium.core.sft import sft_violations
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import policy_pb2, spec_pb2

from podium_controller.api.distillation import distillation_violations
from podium_controller.api.environments import environment_violations
from podium_controller.domain.best_metric import best_metric_violations
from podium_controller.domain.budget import budget_violations
from podium_controller.domain.evaluation_reward import evaluation_reward_violations
from podium_controller.domain.identifiers import RESERVED
from podium_controller.domain.row_length import row_length_violations

_TASK_TYPES = ("general", "email_search", "code_generation", "question_answering")
_WEIGHT_TOLERANCE = 1e-6


def complete(spec: spec_pb2.JobSpec) -> spec_pb2.JobSpec:
    """A copy with every default written into it."""
    full = spec_pb2.JobSpec()
    full.CopyFrom(spec)
    for scorer in (*full.reward.scorers, *full.evaluation.reward.scorers):
        if scorer.kind in PART_FIELDS:
            getattr(scorer, PART_FIELDS[scorer.kind]).SetInParent()
    if not full.reward.scorers:
        full.ClearField("reward")
    if not full.evaluation.reward.scorers and full.HasField("evaluation"):
        full.evaluation.ClearField("reward")
    if not full.fork.model:
        full.ClearField("fork")
    if full.HasField("sft") and not full.training.loss.objective:
        full.training.loss.objective = spec_pb2.OBJECTIVE_SUPERVISED
    if not full.distillation.ByteSize():
        full.ClearField("distillation")
    loss = full.training.loss
    if full.HasField("distillation") and not loss.HasField("teacher_coefficient"):
        loss.teacher_coefficient = 1
    apply_defaults(full)
    complete_training(full.training)
    if not full.HasField("client"):
        complete_rollout(full.rollout)
    return full


def violations(job: pb.Job) -> list[Violation]:
    """Everything that is wrong with a completed job beyond the contract's field rules.

    Fields are named as the request of CreateJob has them: `job.spec.…`.
    """
    found: list[Violation] = []
    if job.id in RESERVED:
        found.append(Violation("job.id", f"{job.id!r} is reserved; it names the base model"))
    found += _not_empty(job.spec.project, "project")
    found += budget_violations(job.spec, job.spec.budget, "job.spec.budget")
    found += environment_violations(job.spec)
    of_rollout = client_rollout_violations if job.spec.HasField("client") else rollout_violations
    found += of_rollout(job.spec.rollout, "job.spec.rollout")
    found += _sampling(job.spec.rollout.sampling)
    found += template_violations(
        job.spec.rollout.episode.chat_template_kwargs,
        "job.spec.rollout.episode.chat_template_kwargs",
    )
    found += _players(job.spec)
    found += _reward(job.spec.reward, "job.spec.reward")
    found += training_violations(job.spec.training, "job.spec.training")
    found += _turn_rewards(job.spec)
    found += distillation_violations(job)
    found += row_length_violations(job.spec)
    found += sft_violations(job.spec, "job.spec")
    found += tracking_violations(job.spec.tracking, "job.spec.tracking")
    if job.spec.HasField("evaluation"):
        found += _not_empty(job.spec.evaluation.split, "evaluation.split")
        found += best_metric_violations(job.spec)
        found += _reward(job.spec.evaluation.reward, "job.spec.evaluation.reward")
        found += evaluation_reward_violations(job.spec)
    return found


def _players(spec: spec_pb2.JobSpec) -> list[Violation]:
    path = "job.spec.rollout.episode"
    episode = spec.rollout.episode
    why = "allowed is nobody: what trains is what the policy says"
    found = []
    if AGENT in episode.players:
        got = episode.players[AGENT]
        found.append(Violation(f"{path}.players[{AGENT}]", f"got {got!r}; {why}"))
    if AGENT in episode.model_players:
        got = episode.model_players[AGENT].model
        found.append(Violation(f"{path}.model_players[{AGENT}]", f"got {got!r}; {why}"))
    return (
        found
        + model_player_violations(episode, path)
        + model_player_violations(spec.evaluation, "job.spec.evaluation")
    )


def _not_empty(value: str, path: str) -> list[Violation]:
    if value:
        return []
    return [Violation(f"job.spec.{path}", "got an empty value; leave it out for the default")]


_LEAST_TEMPERATURE = 0.01
"""vLLM's. What is sampled at it, and trained at the one that was asked for, is another policy's."""


def _sampling(sampling: policy_pb2.SamplingParams) -> list[Violation]:
    """Training needs the log-probs of the full softmax at one temperature."""
    path = "job.spec.rollout.sampling"
    full_softmax = "training needs log-probs of the full softmax"
    found = []
    if sampling.temperature <= 0:
        found.append(
            Violation(
                f"{path}.temperature",
                "got 0; allowed are numbers above 0: greedy attempts of a group are all alike",
            )
        )
    elif sampling.temperature < _LEAST_TEMPERATURE * (1 - 1e-6):
        text = f"got {sampling.temperature:g}; allowed are numbers from 0.01 up: vLLM samples at"
        found.append(Violation(f"{path}.temperature", f"{text} 0.01 what is below it, unsaid"))
    if sampling.top_p < 1:
        found.append(
            Violation(f"{path}.top_p", f"got {sampling.top_p:g}; allowed is 1: {full_softmax}")
        )
    if sampling.top_k > 0:
        found.append(
            Violation(f"{path}.top_k", f"got {sampling.top_k}; allowed is 0: {full_softmax}")
        )
    if sampling.json_schema:
        found.append(
            Violation(f"{path}.json_schema", f"got a schema; allowed is none: {full_softmax}")
        )
    if sampling.HasField("seed"):
        found.append(
            Violation(
                f"{path}.seed",
                f"got {sampling.seed}; allowed is none: every attempt's seed derives from"
                " job.spec.seed",
            )
        )
    return found


def _reward(reward: spec_pb2.RewardSpec, field: str) -> list[Violation]:
    found = []
    for index, scorer in enumerate(reward.scorers):
        path = f"{field}.scorers[{index}]"
        own = PART_FIELDS.get(scorer.kind)
        for name in PART_FIELDS.values():
            if name != own and scorer.HasField(name):
                kind = spec_pb2.ScorerKind.Name(scorer.kind)
                found.append(Violation(f"{path}.{name}", f"does not belong to a {kind} scorer"))
        if own == "weighted":
            found += _criteria(scorer.weighted, f"{path}.weighted")
        found += scorer_violations(scorer, path)
    if reward.scorers and not any(scorer.weight > 0 for scorer in reward.scorers):
        found.append(Violation(f"{field}.scorers", "got weight 0 for every scorer; one must count"))
    return found


def _turn_rewards(spec: spec_pb2.JobSpec) -> list[Violation]:
    """What a turn earns is the environment's to say, which needs a part in the reward."""
    kind = spec.training.loss.turn_advantage
    if kind == spec_pb2.TURN_ADVANTAGE_NONE or not spec.reward.scorers:
        return []
    environment = spec_pb2.SCORER_KIND_ENVIRONMENT
    if any(each.kind == environment and each.weight > 0 for each in spec.reward.scorers):
        return []
    return [
        Violation(
            "job.spec.training.loss.turn_advantage",
            f"got {spec_pb2.TurnAdvantage.Name(kind)} without a SCORER_KIND_ENVIRONMENT of weight"
            " above 0 in job.spec.reward.scorers, whose rewards are all that turns have; allowed"
            " is TURN_ADVANTAGE_NONE",
        )
    ]


def _criteria(weighted: spec_pb2.WeightedCriteria, path: str) -> list[Violation]:
    found = []
    total = math.fsum(
        (weighted.accuracy, weighted.efficiency, weighted.completeness, weighted.satisfaction)
    )
    if abs(total - 1) > _WEIGHT_TOLERANCE:
        found.append(
            Violation(
                path,
                f"accuracy, efficiency, completeness and satisfaction sum to {total:g};"
                " allowed is 1",
            )
        )
    if weighted.task_type not in _TASK_TYPES:
        found.append(
            Violation(
                f"{path}.task_type",
                f"got {weighted.task_type!r}; allowed are {', '.join(_TASK_TYPES)}",
            )
        )
    return found
