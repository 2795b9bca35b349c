"""The routes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from podium.assets import CURVES, UPLOT
from podium.core.errors import PodiumError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from podium_console.adapters.installation import Installation
from podium_console.settings import Settings
from podium_console.web import (
    checkpoints,
    episodes,
    evaluations,
    jobs,
    overview,
    replies,
    session,
    usage,
)
from podium_console.web.gateway import calls, framings
from podium_console.web.guard import Guard

STATIC = Path(__file__).parent.parent / "static"
_JOB = "/api/jobs/{job}"
_STREAMS = (framings.LINES.media_type, framings.CONNECT.media_type)


def build(settings: Settings, installation: Installation, draining: asyncio.Event) -> Guard:
    """The whole app. When `draining` is set, pages that are told of changes are told no more."""
    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/status", overview.status),
            Route("/session", session.show),
            Route("/session", session.sign_in, methods=["POST"]),
            Route("/session", session.sign_out, methods=["DELETE"]),
            Route("/api/live", overview.live),
            Route("/api/jobs", jobs.list_jobs),
            Route("/api/jobs", jobs.create, methods=["POST"]),
            Route(_JOB, jobs.get_job),
            Route(f"{_JOB}/steps", jobs.list_steps),
            Route(f"{_JOB}/evaluations", jobs.list_evaluations),
            Route(f"{_JOB}/events", jobs.list_events),
            Route(f"{_JOB}/watch", jobs.watch),
            Route(f"{_JOB}/episodes", episodes.list_episodes),
            Route(f"{_JOB}/episode", episodes.get_episode),
            Route(f"{_JOB}/episode/text", episodes.get_text),
            Route(f"{_JOB}/{{action}}", jobs.steer, methods=["POST"]),
            Route("/api/evaluations", evaluations.list_stored),
            Route("/api/evaluations/compare", evaluations.compare),
            Route("/api/evaluations/{evaluation}", evaluations.get_stored),
            Route("/api/evaluations/{evaluation}/scenarios", evaluations.list_scenarios),
            Route("/api/models", checkpoints.list_models),
            Route("/api/models/{model}", checkpoints.list_versions),
            Route("/api/models/{model}/{version}/lineage", checkpoints.get_lineage),
            Route("/api/models/{model}/aliases/{alias}", checkpoints.get_alias),
            Route("/api/models/{model}/aliases/{alias}", checkpoints.set_alias, methods=["POST"]),
            Route("/api/usage", usage.list_usage),
            Route("/api/pools", checkpoints.list_pools),
            Route("/api/load", checkpoints.load_policy, methods=["POST"]),
            Route("/api/chat", checkpoints.talk, methods=["POST"]),
            Route(f"{calls.PREFIX}{{method:path}}", calls.call, methods=calls.HTTP_METHODS),
            Route("/static/curves.json", _curves),
            Mount("/static/uplot", StaticFiles(directory=UPLOT)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={
            PodiumError: replies.on_error,
            Exception: replies.on_defect,
            404: _no_page,
            405: _no_page,
        },
        middleware=[
            Middleware(
                GZipMiddleware,
                minimum_size=2000,
                compresslevel=5,
                # Compressed, the pieces of a stream would wait for each other.
                exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, *_STREAMS),
            )
        ],
    )
    app.state.settings = settings
    app.state.installation = installation
    app.state.draining = draining
    app.state.streams = 0
    app.state.writing = asyncio.Semaphore(1)
    app.state.shared = overview.Shared(min(1.0, settings.refresh_seconds))
    return Guard(app, settings)


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _curves(request: Request) -> Response:
    return FileResponse(CURVES)


async def _no_page(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    words = "there is no such page" if status == 404 else "not with this method"
    body = {"error": {"message": words, "reason": "", "error_id": "", "violations": []}}
    return JSONResponse(body, status)
