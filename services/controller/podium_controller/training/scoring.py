"""Who says what a job's groups are worth: its teacher, its judges, both, or nobody."""

from __future__ import annotations

from podium.core.policy_names import parse_policy

from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord, Ledger
from podium_controller.pools.pools import Pool
from podium_controller.pools.projects import project_of
from podium_controller.training.judging import Judging, JudgingUnlessShown, NoJudging, Scoring
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import Reporter
from podium_controller.training.serving import Serving
from podium_controller.training.teaching import Teacher, Teaching


def scoring_of(
    job: JobRecord,
    judging: Judging,
    teacher_pool: Pool | None,
    recovery: Recovery,
    ledger: Ledger,
    reporter: Reporter,
) -> Scoring:
    """What scores the job's groups.

    Args:
        judging: by its scorers, where those count.
        teacher_pool: where its teacher is served; None where it has none, or the settings no more.

    Raises:
        JobFailedError: TEACHER_POOL_GONE: the settings do not name that pool.
    """
    spec = job.spec
    if spec.HasField("sft"):
        return NoJudging(ledger)
    found: Scoring = judging
    if spec.HasField("distillation"):
        if teacher_pool is None:
            raise JobFailedError(
                f"the pool {spec.distillation.pool!r} of the teacher is gone from the settings",
                reason="TEACHER_POOL_GONE",
            )
        policy = parse_policy(spec.distillation.teacher)
        serving = Serving(policy.job, teacher_pool.inference, ledger, recovery)
        serving.version = policy.version
        found = Teaching(
            job.id,
            project_of(spec),
            Teacher(policy, teacher_pool, serving),
            judging if spec.training.loss.reward_coefficient else None,
            recovery,
            ledger,
            reporter,
        )
    return JudgingUnlessShown(ledger, found) if spec.HasField("client") else found
