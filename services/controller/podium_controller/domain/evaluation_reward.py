"""How a job's evaluations are scored."""

from __future__ import annotations

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

from podium_controller.domain.step_metrics import WIN_RATE

_PATH = "job.spec.evaluation"


def evaluation_reward(spec: spec_pb2.JobSpec) -> spec_pb2.RewardSpec:
    """The scorers of its evaluations; none for the environment's own rewards."""
    return spec.reward if spec.evaluation.job_reward else spec.evaluation.reward


def has_judge(spec: spec_pb2.JobSpec) -> bool:
    """Whether its evaluations ask RULER, and so keep the first version's attempts."""
    scorers = evaluation_reward(spec).scorers
    return any(scorer.kind == spec_pb2.SCORER_KIND_RULER for scorer in scorers)


def evaluation_reward_violations(spec: spec_pb2.JobSpec) -> list[Violation]:
    """What no scorer's own rules say of how evaluations are scored."""
    evaluation = spec.evaluation
    found = []
    if evaluation.job_reward and evaluation.reward.scorers:
        text = "got true beside job.spec.evaluation.reward; allowed is one of the two"
        found.append(Violation(f"{_PATH}.job_reward", text))
    elif evaluation.job_reward and not spec.reward.scorers:
        text = "got true; needs job.spec.reward, without which rewards are the environment's own"
        found.append(Violation(f"{_PATH}.job_reward", text))
    scorers = evaluation_reward(spec).scorers
    count = sum(scorer.kind == spec_pb2.SCORER_KIND_RULER for scorer in scorers)
    if count > 1:
        field = f"{_PATH}.job_reward" if evaluation.job_reward else f"{_PATH}.reward.scorers"
        text = f"got {count} SCORER_KIND_RULER; allowed is one, which may have several judges"
        found.append(Violation(field, text))
    metric = evaluation.best_metric
    if metric.rpartition("/")[2] == WIN_RATE and not count:
        text = f"got {metric!r}; needs a SCORER_KIND_RULER in {_PATH}.reward, which compares"
        found.append(Violation(f"{_PATH}.best_metric", text))
    return found
