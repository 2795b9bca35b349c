"""Wires the controller together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import (
    evaluation_service_pb2_grpc,
    job_service_pb2_grpc,
    session_service_pb2_grpc,
)
from podium.kit.rpc import Server

from podium_controller.api.admission import Admission
from podium_controller.api.evaluation_servicer import EvaluationServicer
from podium_controller.api.job_servicer import JobServicer
from podium_controller.api.project_budgets import ProjectBudgets
from podium_controller.api.session_servicer import SessionServicer
from podium_controller.api.trackers import Trackers
from podium_controller.domain.notifications import Notifications
from podium_controller.grpc_peers.peers import (
    connected,
    connected_pools,
    connected_trainer_pools,
)
from podium_controller.pools.projects import Projects
from podium_controller.scheduling.scheduler import Scheduler
from podium_controller.settings import Settings
from podium_controller.store import (
    BatchStore,
    ClientStore,
    Database,
    EvaluationStore,
    JobStore,
    LeaseStore,
    SqlLedger,
    UsageStore,
)


@asynccontextmanager
async def controller(server: Server, settings: Settings) -> AsyncIterator[None]:
    """Adds JobService, SessionService and EvaluationService, and runs jobs inside the block."""
    projects = Projects.load(settings.projects_file)
    trackers = Trackers.load(settings.tracking, settings.tracking_secrets_file, projects)
    database = Database(settings.resolved_database_url())
    try:
        await database.reachable(settings.database_wait_seconds)
        await database.migrate()
        notifications = Notifications()
        usage = UsageStore(database)
        async with (
            connected_trainer_pools(settings) as trainer_pools,
            connected(settings, trainer_pools) as peers,
            connected_pools(settings, projects) as pools,
        ):
            scheduler = Scheduler(
                peers,
                pools,
                projects,
                LeaseStore(database),
                lambda epoch: SqlLedger(database, notifications, epoch),
                settings,
                trainer_pools,
            )
            server.add(
                job_service_pb2_grpc.add_JobServiceServicer_to_server,
                JobServicer(
                    JobStore(database, notifications),
                    Admission(peers, pools, projects, trackers, trainer_pools),
                    notifications,
                    scheduler.wake,
                    settings.poll_seconds,
                    scheduler.episodes_running,
                    usage,
                    settings.gpu_hour_price,
                    ProjectBudgets(projects, usage),
                ),
                "podium.jobs.v1.JobService",
            )
            server.add(
                session_service_pb2_grpc.add_SessionServiceServicer_to_server,
                SessionServicer(
                    BatchStore(database, notifications),
                    ClientStore(database, notifications),
                    scheduler.wake,
                ),
                "podium.jobs.v1.SessionService",
            )
            server.add(
                evaluation_service_pb2_grpc.add_EvaluationServiceServicer_to_server,
                EvaluationServicer(
                    EvaluationStore(
                        database,
                        settings.evaluation_store_max_bytes,
                        settings.evaluation_retention_days,
                    ),
                    projects,
                ),
                "podium.jobs.v1.EvaluationService",
            )
            running = asyncio.create_task(scheduler.run(), name="scheduler")
            try:
                yield
            finally:
                await cancel_and_wait(running)
    finally:
        await database.close()
