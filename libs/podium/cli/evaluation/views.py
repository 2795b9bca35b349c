"""How stored evaluations are shown."""

from __future__ import annotations

from podium.cli.evaluation.judge import scorers_text
from podium.cli.output import TableView
from podium.cli.views import local_time
from podium.jobs.v1 import evaluation_service_pb2 as pb


def _share(evaluation: pb.StoredEvaluation, name: str) -> str:
    if not evaluation.HasField(name):  # type: ignore[arg-type]
        return "-"
    found: pb.Interval = getattr(evaluation, name)
    return f"{found.mean:.1%}{_bounds(found, '{:.1%}')}"


def _reward(evaluation: pb.StoredEvaluation) -> str:
    if not evaluation.HasField("mean_reward"):
        return "-"
    return f"{evaluation.mean_reward.mean:.3f}{_bounds(evaluation.mean_reward, '{:.3f}')}"


def _bounds(found: pb.Interval, form: str) -> str:
    if not found.HasField("low"):
        return ""
    return f" ({form.format(found.low)} to {form.format(found.high)})"


def _policy(evaluation: pb.StoredEvaluation) -> str:
    if not evaluation.HasField("policy"):
        return ""
    job, version = evaluation.policy.job, evaluation.policy.version
    return f"{job}@{version}" if job else "the base model"


def _sampling(evaluation: pb.StoredEvaluation) -> str:
    if not evaluation.HasField("sampling"):
        return ""
    sampling = evaluation.sampling
    return f"temperature {sampling.temperature:g}, at most {sampling.max_tokens} tokens"


EVALUATIONS = TableView[pb.StoredEvaluation](
    name=lambda each: each.id,
    columns=(
        ("ID", lambda each: each.id),
        ("NAME", lambda each: each.name or "-"),
        ("AGENT", lambda each: each.agent),
        ("ENVIRONMENT", lambda each: each.environment.name),
        ("SPLIT", lambda each: each.environment.split),
        ("SCENARIOS", lambda each: str(each.scenarios)),
        ("SUCCESS", lambda each: _share(each, "success")),
        ("REWARD", _reward),
        ("TIME", lambda each: local_time(each.create_time)),
    ),
)

EVALUATION = TableView[pb.StoredEvaluation](
    name=lambda each: each.id,
    columns=(
        ("id", lambda each: each.id),
        ("name", lambda each: each.name),
        ("project", lambda each: each.project),
        ("agent", lambda each: each.agent),
        ("policy", _policy),
        ("environment", lambda each: each.environment.name),
        ("split", lambda each: each.environment.split),
        ("scenarios", lambda each: str(each.scenarios)),
        ("attempts", lambda each: str(each.counted)),
        ("unanswered", lambda each: str(each.unanswered or "")),
        ("success", lambda each: _share(each, "success")),
        ("reward", _reward),
        ("rewards are", lambda each: scorers_text(each.reward)),
        ("win rate", lambda each: _share(each, "win_rate") if each.reference else ""),
        ("against", lambda each: each.reference),
        ("seed", lambda each: str(each.seed)),
        ("sampling", _sampling),
        ("turns", lambda each: f"at most {each.episode.max_turns}"),
        ("podium", lambda each: each.podium_version),
        ("stored", lambda each: local_time(each.create_time)),
    ),
)
