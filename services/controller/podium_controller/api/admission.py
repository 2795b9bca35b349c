"""Asks the services whether a job can run at all, before it is queued."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from podium.core.contract.judging import asks_others
from podium.core.contract.text import nearest
from podium.core.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
    UnavailableError,
    UnimplementedError,
    Violation,
)
from podium.core.job_environments import environments_of, name_of, path_of
from podium.core.version_state import has_state
from podium.types.v1 import spec_pb2

from podium_controller.api.distillation import check_teacher, teacher_warnings
from podium_controller.api.trackers import Trackers
from podium_controller.api.trainers import check_trainer
from podium_controller.domain.budget import JUDGE_COST, added_bounds, bounded
from podium_controller.domain.ports import Peers
from podium_controller.domain.row_length import complete_row_length, row_length_warnings
from podium_controller.pools.pools import Offer, Pools, served
from podium_controller.pools.projects import Projects, project_of
from podium_controller.pools.trainer_pools import TrainerPools

logger = logging.getLogger(__name__)


class Admission:
    """The checks of CreateJob that need other services."""

    def __init__(
        self,
        peers: Peers,
        pools: Pools,
        projects: Projects,
        trackers: Trackers | None = None,
        trainer_pools: TrainerPools | None = None,
    ) -> None:
        self._peers = peers
        self._pools = pools
        self._projects = projects
        self._trackers = trackers or Trackers()
        self._trainer_pools = trainer_pools or TrainerPools([])

    def check_project(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        """Whether there is such a project, and it may use the trackers' secrets that it names."""
        return self._projects.violations(project_of(spec)) or self._trackers.violations(spec)

    async def check_model(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        """What the engines of the pools say against the specification.

        Where the specification leaves the length of rows open, it follows their context.

        Raises:
            FailedPreconditionError: no pool serves the base model.
            UnavailableError: none does that answers, and another has never answered.
        """
        offers = await self._pools.ask()
        serving = [offer for offer in offers if offer.serves(spec)]
        if not serving:
            if others := [offer for offer in offers if offer.has_model(spec)]:
                return [
                    *_rendered_otherwise(spec, others),
                    *_not_rendered(spec, others),
                    *_not_taken(spec, others),
                ]
            raise _not_served(spec.base_model, offers)
        window = _window(serving)
        complete_row_length(spec, window)
        if any(offer.fits_context(spec) for offer in serving):
            return []
        return [
            Violation(
                "job.spec.rollout.sampling.max_tokens",
                f"got {spec.rollout.sampling.max_tokens}; the pool's context window is {window}"
                " tokens, prompt and answer together",
            )
        ]

    def warnings(self, spec: spec_pb2.JobSpec) -> list[str]:
        """What is allowed and may not be what was meant, of a job that passed the checks."""
        serving = [offer for offer in self._pools.offers() if offer.serves(spec)]
        return (
            row_length_warnings(spec, _window(serving))
            + teacher_warnings(spec, self._pools.offers())
            + self._trackers.warnings(spec)
        )

    async def check_fork(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        """Whether there is what the job starts from; an open version becomes the newest one's."""
        if not spec.HasField("fork"):
            return []
        fork = spec.fork
        if fork.HasField("version"):
            found = await self._peers.registry.version(fork.model, fork.version)
        else:
            found = await self._peers.registry.alias(fork.model, "latest")
            if found is not None and not has_state(found):
                found = await self._peers.registry.resumable(fork.model, found.manifest.version)
        if found is None:
            version = fork.version if fork.HasField("version") else "latest"
            text = f"got {fork.model}@{version}, which the registry does not have"
            return [Violation("job.spec.fork", text)]
        manifest = found.manifest
        fork.version = manifest.version
        violations = []
        if not has_state(found):
            older = await self._peers.registry.resumable(fork.model, fork.version)
            text = f"got {fork.version}, which has weights alone; allowed are versions with state"
            if older is not None:
                text += f", as {older.manifest.version} is"
            violations.append(Violation("job.spec.fork.version", text))
        if manifest.base_model != spec.base_model:
            text = f"{fork.model} was trained from {manifest.base_model!r}, not {spec.base_model!r}"
            violations.append(Violation("job.spec.fork.model", text))
        if fork.version >= spec.training.steps:
            text = f"got {spec.training.steps}; the fork has taken {fork.version} steps already"
            violations.append(Violation("job.spec.training.steps", text))
        return violations

    async def check_teacher(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        """Whether there is the teacher that it names; an open version becomes a number.

        Raises:
            UnavailableError: its pool has never answered.
        """
        if not spec.distillation.teacher:
            return []
        return await check_teacher(spec, await self._pools.ask(), self._peers.registry)

    async def check_trainer(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        """Whether a trainer can be had where the job wants it."""
        return await check_trainer(spec, self._peers.trainers, self._trainer_pools)

    async def check_judge(
        self, spec: spec_pb2.JobSpec, judge_cost: str = f"job.spec.{JUDGE_COST}"
    ) -> list[Violation]:
        """What the judge service says against whom it is to ask; nothing while it is away.

        Args:
            judge_cost: where the request has the bound on what judges cost.
        """
        own = ((spec.reward, "job.spec"), (spec.evaluation.reward, "job.spec.evaluation"))
        return [
            violation
            for reward, path in own
            if asks_others(reward)
            for violation in await self._check_reward(spec, reward, path, judge_cost)
        ]

    async def _check_reward(
        self, spec: spec_pb2.JobSpec, reward: spec_pb2.RewardSpec, path: str, judge_cost: str
    ) -> list[Violation]:
        asked = bounded(reward, spec.budget)
        try:
            await self._peers.judge.check(asked, spec.base_model)
        except InvalidArgumentError as error:
            # Its request has the reward where a job's specification has it.
            of_budget = added_bounds(reward, asked)
            found = {
                (judge_cost if v.field in of_budget else f"{path}.{v.field}"): v
                for v in error.violations
            }
            return [Violation(field, v.description) for field, v in found.items()]
        except (UnavailableError, DeadlineExceededError, UnimplementedError) as error:
            logger.warning("a judge could not be checked", extra={"error": error.message})
        return []

    async def check_environment(
        self, spec: spec_pb2.JobSpec, *, may_wait: bool = False
    ) -> list[Violation]:
        """Whether the environment exists and has scenarios to train and evaluate on.

        With `may_wait` a job passes while no rollout service can say: it waits for one
        before it takes a trainer, and what is wrong is told then.

        Raises:
            UnavailableError: no rollout service answers, or it finds the job's own
                environment away, which a mistyped address is too.
        """
        try:
            return await self._environment_violations(spec)
        except UnavailableError as error:
            if not may_wait or error.metadata.get("peer") != "rollout":
                raise
            logger.warning("an environment could not be checked", extra={"error": error.message})
            return []

    async def _environment_violations(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        if spec.environment.image:
            # It runs with the job, and is asked for its scenarios then.
            return await self._peers.environments.violations(spec.environment)
        found = []
        evaluated = spec.evaluation.environments
        for index, each in enumerate(environments_of(spec)):
            environment, path = each.environment, path_of(spec, index)
            own = await self._check_split(environment, environment.split, f"{path}.split", path)
            measured = not evaluated or name_of(each) in evaluated
            if not own and spec.HasField("evaluation") and measured:
                split = spec.evaluation.split
                own = await self._check_split(environment, split, "job.spec.evaluation.split", path)
            found += own
        return found

    async def check_name(self, job_id: str) -> None:
        """A new job must not find another's checkpoints under its name.

        Raises:
            AlreadyExistsError: the registry has a model of that name.
        """
        if await self._peers.registry.alias(job_id, "latest") is not None:
            raise AlreadyExistsError(
                f"the registry has checkpoints of a former job {job_id!r}; choose another id",
                reason="MODEL_EXISTS",
                metadata={"job_id": job_id},
            )

    async def _check_split(
        self, environment: spec_pb2.EnvironmentSpec, split: str, split_path: str, path: str
    ) -> list[Violation]:
        try:
            scenarios = await self._peers.rollout.scenarios(environment, split, 1)
        except NotFoundError as error:
            return await self._missing(environment, split, split_path, path, error)
        except InvalidArgumentError as error:
            return [Violation(f"{path}.config", error.message)]
        if not scenarios:
            text = f"got {split!r}, in which environment {environment.name!r} has no scenarios"
            return [Violation(split_path, text)]
        return []

    async def _missing(
        self,
        environment: spec_pb2.EnvironmentSpec,
        split: str,
        split_path: str,
        path: str,
        error: NotFoundError,
    ) -> list[Violation]:
        name = environment.name
        if environment.address:
            return [Violation(f"{path}.name", error.message)]
        known = {each.name: each for each in await self._peers.rollout.environments()}
        if name not in known:
            allowed = f"{', '.join(sorted(known)) or 'none'}{nearest(name, known)}"
            return [Violation(f"{path}.name", f"got {name!r}; allowed are {allowed}")]
        splits = ", ".join(known[name].splits)
        return [Violation(split_path, f"got {split!r}; environment {name!r} has {splits}")]


def _window(serving: Sequence[Offer]) -> int:
    """Tokens of their widest context; 0 if none is known."""
    return max((o.engine.max_model_len for o in serving if o.engine is not None), default=0)


def _rendered_otherwise(spec: spec_pb2.JobSpec, offers: Sequence[Offer]) -> list[Violation]:
    """Of each thing that is asked for and that some pool has otherwise, what the pools have."""
    wanted = spec.rollout.episode.rendering
    violations = []
    for field, value in wanted.ListFields():
        has = {
            offer.pool.name: offer.renders_otherwise(spec).get(field.name, value)
            for offer in offers
        }
        if all(own == value for own in has.values()):
            continue
        told = ", ".join(f"pool {name!r} has {own or 'none'}" for name, own in has.items())
        text = f"got {value!r}; of {spec.base_model!r} {told}"
        violations.append(Violation(f"job.spec.rollout.episode.rendering.{field.name}", text))
    return violations


def _not_rendered(spec: spec_pb2.JobSpec, offers: Sequence[Offer]) -> list[Violation]:
    """Why the pools render no conversation at all, which episodes are."""
    why = next(filter(None, (offer.cannot_render(spec) for offer in offers)), "")
    if not why:
        return []
    text = f"got {spec.base_model!r}, of which no conversation can be rendered: {why}"
    return [Violation("job.spec.base_model", text)]


def _not_taken(spec: spec_pb2.JobSpec, offers: Sequence[Offer]) -> list[Violation]:
    """What the pools cannot serve of what the job trains."""
    training = spec.training
    refusing = [each for each in offers if not each.takes_weights(training)]
    if not refusing:
        return []
    why = next((o.engine.untrainable for o in refusing if o.engine and o.engine.untrainable), "")
    if why:
        text = f"got {spec.base_model!r}, on which no job can train: {why}"
        return [Violation("job.spec.base_model", text)]
    names = ", ".join(repr(each.pool.name) for each in refusing)
    pools = f"of {spec.base_model!r} pool {names} serves adapters"
    if training.trainable == spec_pb2.TRAINABLE_KIND_FULL:
        text = (
            f"got TRAINABLE_KIND_FULL; {pools}, not whole weights; allowed is TRAINABLE_KIND_LORA,"
            " or a pool of merged weights (PODIUM_INFERENCE_WEIGHT_MODE=merged)"
        )
        return [Violation("job.spec.training.trainable", text)]
    most = max(each.engine.max_lora_rank for each in refusing if each.engine is not None)
    text = (
        f"got {training.lora.rank}; {pools} of a rank up to {most} (PODIUM_INFERENCE_MAX_LORA_RANK)"
    )
    return [Violation("job.spec.training.lora.rank", text)]


def _not_served(base_model: str, offers: Sequence[Offer]) -> PodiumError:
    message = f"job.spec.base_model: got {base_model!r}, which no pool serves; {served(offers)}"
    known = [offer.engine.base_model for offer in offers if offer.engine is not None]
    if len(known) < len(offers):
        return UnavailableError(message, reason="POOL_UNAVAILABLE", metadata={"peer": "inference"})
    return FailedPreconditionError(
        message,
        reason="BASE_MODEL_NOT_SERVED",
        metadata={"base_model": base_model, "served": ", ".join(sorted(set(known)))},
    )
