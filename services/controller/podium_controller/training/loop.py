"""The training loop of one job: nothing but the order in which its components work.

sample → collect → score → step → save → load → commit → retain → evaluate; the optimizer's
state is stored behind it, while the next step is collected.
Every piece may be repeated after a crash; what makes a step real is that the
registry has its version (docs/decisions/0004).
"""

from __future__ import annotations

import logging
from collections import deque

from podium.core.errors import DataLossError
from podium.core.sft import HELDOUT_LOSS
from podium.core.skip_reasons import NO_ENVIRONMENT_ANSWERS
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.telemetry import exemplar
from podium.types.v1 import spec_pb2

from podium_controller.domain import metrics
from podium_controller.domain.accounts import JobMeter
from podium_controller.domain.budget import BUDGET_EXHAUSTED, bounded, exhausted
from podium_controller.domain.errors import BudgetSpentError, JobFailedError
from podium_controller.domain.ports import JobRecord, Ledger, Peers, Trainer
from podium_controller.domain.reasons import CLIENT
from podium_controller.domain.step_metrics import (
    RATE_STEPS,
    first_start_ns,
    own_metrics,
    seconds_per_step,
)
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.pools.pools import Pool
from podium_controller.pools.projects import ProjectLimits, project_of
from podium_controller.training import step_span
from podium_controller.training.aliases import Aliases
from podium_controller.training.batches import Batches, batches_of
from podium_controller.training.coaching import Coaching
from podium_controller.training.collector import StepBatch
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.evaluation_scoring import EvaluationScoring
from podium_controller.training.evaluator import Evaluator, is_due
from podium_controller.training.group_sources import ClientGroups
from podium_controller.training.judge_spending import JudgeSpending, ProjectAccounts
from podium_controller.training.judging import Judging
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import COLLECT, SERVE, WAIT, Reporter
from podium_controller.training.resume import version_damaged
from podium_controller.training.scoring import scoring_of
from podium_controller.training.serving import Serving
from podium_controller.training.sources import Sources
from podium_controller.training.step_runner import (
    SECONDS_PREFIX,
    TRAIN_PREFIX,
    Published,
    StepRunner,
)

# Of stored bytes; a stream that was cut short is none.
_DAMAGES = frozenset({"BLOB_DAMAGED", "WRONG_DIGEST"})

logger = logging.getLogger(__name__)


class TrainingLoop:
    """Runs a job from its last committed step to its end."""

    def __init__(
        self,
        job: JobRecord,
        peers: Peers,
        pool: Pool,
        trainer: Trainer,
        ledger: Ledger,
        control: StopSignals,
        limits: ProjectLimits,
        meter: JobMeter,
        project_accounts: ProjectAccounts,
        teacher_pool: Pool | None = None,
    ) -> None:
        """`teacher_pool` is None for a job without a teacher; `limits` are its project's.

        `project_accounts` are of all jobs that this controller runs.
        """
        self._job = job
        self._spec = job.spec
        self._peers = peers
        self._ledger = ledger
        self._control = control
        self._trainer = trainer
        self._pool = pool
        self._limits = limits
        self._meter = meter
        self._teacher_pool = teacher_pool
        self._completed = job.completed_steps
        self._reporter = Reporter(job.id, ledger)
        self._recovery = Recovery(self._reporter, control, job.spec.recovery_timeout_seconds)
        self._serving = Serving(
            job.id, pool.inference, ledger, self._recovery, job.spec.rollout.weight_update
        )
        self._spending = JudgeSpending(
            job.id, job.spec.budget, ledger, project_of(job.spec), limits, project_accounts
        )
        self._coaching = Coaching(job.id, job.spec, ledger)
        self._aliases = Aliases(job.id, job.spec, peers.registry, self._recovery)
        self._step_runner = StepRunner(
            job.id,
            job.spec,
            trainer,
            peers.registry,
            ledger,
            self._recovery,
            self._reporter,
        )
        source = EpisodeSource(
            rollout=peers.rollout,
            pool=pool,
            project=project_of(job.spec),
            reporter=self._reporter,
            serving=self._serving,
            recovery=self._recovery,
            environment=job.spec.environment,
            seed=job.spec.seed,
            episode=job.spec.rollout.episode,
        )
        self._sources = Sources(job, peers, source, self._reporter, control)
        self._evaluator: Evaluator | None = None
        self._damage: DataLossError | None = None
        self._restored = -1
        """The last version that was restored after damage; -1 for none."""
        self._commits: deque[int] = deque(maxlen=RATE_STEPS)
        self._client: ClientGroups | None = None
        if job.spec.HasField("client"):
            self._client = ClientGroups(job.id, job.spec.client, ledger)

    async def run(self) -> None:
        """Returns when the last step is committed and evaluated.

        Raises:
            PauseRequestedError, JobIdleError, BudgetSpentError: at a point from
                which `run` can begin again.
            JobFailedError: the job cannot go on.
            PodiumError: what a service answered that time does not heal.
        """
        await self._reporter.set_phase(WAIT)
        await self._sources.place()
        await self._find_evaluator()
        while True:
            try:
                return await self._train()
            except DataLossError as error:
                if error.reason not in _DAMAGES:
                    raise
                if self._restored == self._completed:
                    raise version_damaged(self._job.id, self._completed, error) from error
                # Whoever met it, trainer or pool: all begin again, at a version that is whole.
                self._restored, self._damage = self._completed, error

    async def _train(self) -> None:
        batches = await self._batches()
        try:
            await self._establish()
            last = self._spec.training.steps
            overlap = self._spec.rollout.max_staleness > 0
            await self._evaluate_if_due()
            while self._completed < last:
                self._control.check_pause()
                # A client's next batch may never come: its job ends then, and rests not.
                if self._client is None:
                    await self._check_budget()
                batches.advance(self._completed)
                if not await self._has_batch(batches):
                    break
                if self._client is not None:
                    await self._check_budget()
                await self._step(batches)
                if overlap:
                    batches.advance(self._completed)
                await self._aliases.retain(self._step_runner.awaited)
                await self._evaluate_if_due()
            if self._completed < last:
                await self._evaluate()
            # A job can be forked from its end; and what waited for its state to come is kept.
            await self._step_runner.keep_state(self._completed)
            await self._aliases.retain()
        finally:
            await batches.close()

    async def _check_budget(self) -> None:
        """Ends the run between two steps once the job's or its project's budget is used up.

        Raises:
            BudgetSpentError: it is used up.
        """
        if self._spec.HasField("budget"):
            text = exhausted(self._spec.budget, await self._meter.spent())
            # Or what is left of it is less than a group may take.
            if text := text or self._spending.over_budget:
                raise BudgetSpentError(BUDGET_EXHAUSTED, text)
        if self._limits.has_budget:
            project = project_of(self._spec)
            used = await self._meter.spent_by_project(project, in_all=self._limits.has_total)
            if wait := self._limits.exhausted(project, used):
                raise BudgetSpentError(wait.reason, wait.message)

    async def close(self) -> None:
        """Ends this loop's reports, so that only the caller reports how the job ended."""
        await self._reporter.close()

    async def adopt(self) -> bool:
        """Commits the next step if its version is published already; False if it is not.

        That is so where the controller died, or the job was stopped, between publishing a
        version and committing its step.
        """
        step = self._completed + 1
        if step > self._spec.training.steps:
            return False
        published = await self._step_runner.find(step)
        if published is None:
            return False
        stored = await self._ledger.stored_groups(self._job.id, step)
        begun = first_start_ns([each.group for each in stored.values()])
        await self._commit(step, published, None, begun)
        logger.info("adopted a published step", extra={"job": self._job.id, "step": step})
        return True

    async def keep_state(self) -> None:
        """Stores the optimizer's state of the last step, if the trainer still holds it."""
        await self._trainer.save_state(self._job.id, self._completed)

    async def _batches(self) -> Batches:
        scoring = scoring_of(
            self._job,
            self._judging(self._spec.reward),
            self._teacher_pool,
            self._recovery,
            self._ledger,
            self._reporter,
        )
        return await batches_of(
            self._job,
            self._client,
            self._sources,
            scoring,
            self._ledger,
            self._reporter,
            self._pool,
        )

    def _judging(self, reward: spec_pb2.RewardSpec) -> Judging:
        return Judging(
            self._peers.judge,
            bounded(reward, self._spec.budget),
            self._recovery,
            self._ledger,
            self._spending,
        )

    async def _find_evaluator(self) -> Evaluator | None:
        """Who measures versions; None for nobody, as long as one of several environments is away.

        Raises:
            JobFailedError: the job's only environment stays away, or has nothing to evaluate on.
        """
        if self._evaluator is not None or not self._spec.HasField("evaluation"):
            return self._evaluator
        try:
            tasks = await self._sources.for_evaluation()
        except JobFailedError as error:
            if error.reason != NO_ENVIRONMENT_ANSWERS or len(self._spec.environments) < 2:
                raise
            text = f"no version is evaluated until each environment was there once: {error.message}"
            await self._reporter.warn(text, self._completed)
            return None
        scoring = EvaluationScoring.of(self._spec, self._judging, self._ledger)
        self._evaluator = Evaluator(
            self._job.id, self._spec, self._ledger, self._aliases, self._reporter, tasks, scoring
        )
        return self._evaluator

    async def _establish(self) -> None:
        """Brings trainer and pool to the newest published version, and commits its step."""
        if self._spec.HasField("fork") and self._completed == self._spec.fork.version:
            await self._fork()
        while await self.adopt():
            pass
        self._control.check_pause()
        await self._control.unless_paused(self._step_runner.ready())
        self._meter.hold_trainer()
        damage, self._damage = self._damage, None
        if damage is not None and self._restored == self._completed:
            await self._step_runner.restore(self._completed, damage)
        else:
            await self._step_runner.open(self._completed or None)
        async with self._reporter.timed(SERVE):
            await self._serving.serve(self._completed)

    async def _fork(self) -> None:
        """Publishes a fork's first version from the files of the version that it starts from."""
        fork = self._spec.fork
        await self._recovery.run(
            "registry",
            lambda: self._peers.registry.fork(fork.model, fork.version, self._job.id),
        )

    async def _has_batch(self, batches: Batches) -> bool:
        """Whether there will be groups for the next step; a client may take its time."""
        step = self._completed + 1
        if not batches.is_ready(step):
            await self._reporter.set_phase(COLLECT)
        if self._client is None:
            return True
        metrics.waiting(self._job.id, CLIENT)
        try:
            return await self._control.unless_paused(self._client.arrival(step))
        finally:
            metrics.waiting(self._job.id, "")
            metrics.PROGRESS.labels(self._job.id).set_to_current_time()

    async def _step(self, batches: Batches) -> None:
        step = self._completed + 1
        batch = await batches.take(step)
        try:
            step_span.link(batch.span, batch.groups)
            with step_span.current(batch.span):
                published = await self._step_runner.step(
                    step,
                    batch.groups,
                    own_metrics(self._spec, batch.groups, batch.staleness, batch.counts),
                    batch.seconds,
                )
                async with self._reporter.timed(SERVE, batch.seconds, step=step):
                    await self._serving.serve(step)
                await self._commit(step, published, batch, batch.start_ns)
        finally:
            batch.span.end()

    async def _commit(
        self, step: int, published: Published, batch: StepBatch | None, begun: int | None
    ) -> None:
        """Makes the step visible; `batch` is None for a step that an earlier run published."""
        now = now_ns()
        # A clock may have been set back meanwhile.
        begun = min(begun or now, now)
        numbers = dict(published.metrics)
        trace_id = ""
        if batch is not None:
            numbers |= {f"{SECONDS_PREFIX}{k}": spent for k, spent in batch.seconds.items()}
            trace_id = step_span.trace_id(batch.span)
        made = pb.Step(
            number=step,
            version=published.version,
            group_ids=published.group_ids,
            metrics=numbers,
            start_time=timestamp(begun),
            commit_time=timestamp(now),
            trace_id=trace_id,
        )
        if (loss := numbers.get(TRAIN_PREFIX + HELDOUT_LOSS)) is not None:
            await self._aliases.measured(published.version, loss)
        committed = await self._coaching.commit(made)
        self._completed = step
        if committed:
            self._count(made, published, batch)

    def _count(self, made: pb.Step, published: Published, batch: StepBatch | None) -> None:
        job, now = self._job.id, made.commit_time.ToNanoseconds()
        metrics.stepped(job, made.number, made.metrics, now)
        self._commits.append(now)
        metrics.STEP_INTERVAL.labels(job).set(seconds_per_step(self._commits, made))
        for reason in published.skipped_groups.values():
            metrics.count_group(job, reason)
        trained = len(published.group_ids) - len(published.skipped_groups)
        metrics.count_group(job, metrics.TRAINED, trained)
        if batch is not None:
            took = (now - made.start_time.ToNanoseconds()) / 1e9
            metrics.STEP_SECONDS.labels("total").observe(took, exemplar())

    async def _evaluate_if_due(self) -> None:
        if is_due(self._spec, self._completed):
            await self._evaluate()

    async def _evaluate(self) -> None:
        if (evaluator := await self._find_evaluator()) is not None:
            await self._control.unless_paused(evaluator.evaluate(self._completed))
