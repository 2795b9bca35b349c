"""Signing in: a token goes into a cookie that no script can read, and out again."""

from __future__ import annotations

import podium
from podium.core.errors import UnauthenticatedError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.adapters import caller
from podium_console.web import arguments, guard
from podium_console.web.arguments import installation


async def show(request: Request) -> Response:
    """Whether the services let this browser in, and whether it has shown a token."""
    try:
        await _try(request)
        welcome = True
    except UnauthenticatedError:
        welcome = False
    return JSONResponse(
        {"welcome": welcome, "signed_in": bool(caller.token()), "version": podium.__version__}
    )


async def sign_in(request: Request) -> Response:
    """Keeps a token that the controller takes."""
    body = await arguments.body(request)
    token = arguments.text(body, "token", 100_000).strip()
    if not guard.is_token(token):
        raise arguments.wrong(
            "token", f"must be 1 to {guard.TOKEN_BYTES} visible characters of ASCII"
        )
    caller.speak_as(token)
    await _try(request)
    answer = JSONResponse({"welcome": True})
    settings = arguments.settings(request)
    name = guard.cookie_name(settings)
    answer.set_cookie(
        name,
        guard.write_cookie(token),
        httponly=True,
        samesite="strict",
        secure=name.startswith("__Host-"),
        path="/",
    )
    return answer


async def sign_out(request: Request) -> Response:
    """Forgets the token."""
    name = guard.cookie_name(arguments.settings(request))
    answer = JSONResponse({})
    answer.delete_cookie(
        name, path="/", httponly=True, samesite="strict", secure=name.startswith("__Host-")
    )
    return answer


async def _try(request: Request) -> None:
    with rpc_errors("controller"):
        await installation(request).job_stub.ListJobs(pb.ListJobsRequest(page_size=1))
