"""TrainerService over gRPC: reads the stream, drives the worker, maps the result."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
from podium.core.contract import apply_defaults, complete_training
from podium.kit.rpc.streams import header_and_groups
from podium.kit.telemetry import attributes, traced, tracer
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2

from podium_trainer.learner.checkpoint import Saving
from podium_trainer.learner.session import JobConfig
from podium_trainer.worker import Begun, Worker

logger = logging.getLogger(__name__)
_tracer = tracer(__name__)

_SAVING = {
    pb.STATE_SAVING_BEHIND: Saving.BEHIND,
    pb.STATE_SAVING_NONE: Saving.NONE,
}

Context = grpc.aio.ServicerContext[Any, Any]


class TrainerServicer(pb_grpc.TrainerServiceServicer):
    """See the proto file for what each method does and how it fails."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def Open(self, request: pb.OpenRequest, context: Context) -> pb.OpenResponse:
        """See the proto file."""
        training = spec_pb2.TrainingSpec()
        training.CopyFrom(request.training)
        complete_training(training)
        config = JobConfig(request.job_id, request.base_model, training, request.seed)
        resume = request.resume_version if request.HasField("resume_version") else None
        if not request.project:
            # An empty name is none, and no project of its own.
            request.ClearField("project")
        project = apply_defaults(request).project
        session = await self._worker.open(config, resume, project)
        return pb.OpenResponse(
            step=session.step,
            trainable_parameters=session.policy.trainable_parameters,
            warnings=session.policy.warnings,
        )

    async def Step(
        self, request_iterator: AsyncIterator[pb.StepRequest], context: Context
    ) -> pb.StepResponse:
        """See the proto file."""

        def expect(header: pb.StepHeader) -> None:
            self._worker.expect(header.job_id, header.step)

        header, groups = await header_and_groups(request_iterator, expect)
        with traced(_tracer, "optimizer_step") as span:
            span.set_attribute(attributes.JOB_ID, header.job_id)
            span.set_attribute(attributes.STEP, header.step)
            outcome = await self._worker.step(
                header.job_id, header.step, groups, _on_begin(context)
            )
            for phase, seconds in outcome.seconds.items():
                span.set_attribute(attributes.phase_seconds(phase), seconds)
        logger.info(
            "step taken" if outcome.batch.samples else "step skipped",
            extra={
                "job_id": header.job_id,
                "step": outcome.step,
                "groups": len(groups),
                "skipped_groups": len(outcome.batch.skipped_groups),
                **{name: round(value, 6) for name, value in outcome.metrics.items()},
            },
        )
        return pb.StepResponse(
            step=outcome.step,
            metrics=outcome.metrics,
            skipped_groups=outcome.batch.skipped_groups,
            skipped_trajectories=outcome.batch.skipped_trajectories,
        )

    async def Save(self, request: pb.SaveRequest, context: Context) -> pb.SaveResponse:
        """See the proto file."""
        with traced(_tracer, "save_checkpoint"):
            published = await self._worker.save(
                request.job_id,
                request.step,
                list(request.group_ids),
                dict(request.metrics),
                _SAVING.get(request.state, Saving.WITH),
            )
        return pb.SaveResponse(version=published.version, manifest_digest=published.manifest_digest)

    async def SaveState(
        self, request: pb.SaveStateRequest, context: Context
    ) -> pb.SaveStateResponse:
        """See the proto file."""
        with traced(_tracer, "save_state"):
            await self._worker.save_state(request.job_id, request.step)
        return pb.SaveStateResponse()

    async def Close(self, request: pb.CloseRequest, context: Context) -> pb.CloseResponse:
        """See the proto file."""
        await self._worker.close(request.job_id)
        return pb.CloseResponse()

    async def GetTrainer(
        self, request: pb.GetTrainerRequest, context: Context
    ) -> pb.GetTrainerResponse:
        """See the proto file."""
        held = self._worker.held
        return pb.GetTrainerResponse(
            base_model=held[0].base_model if held else "",
            max_jobs=self._worker.max_jobs,
            open_jobs=[claim.job_id for claim in held],
        )


def _on_begin(context: Context) -> Begun:
    """Tells the caller that its job's step begins: with what a response begins with."""

    async def begun() -> None:
        try:
            await context.send_initial_metadata(())
        except Exception:
            # Who asked may be gone; what became of the call is told as ever.
            logger.debug("nobody heard that a step began", exc_info=True)

    return begun
