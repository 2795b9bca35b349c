"""What jobs and projects have used, and what projects may."""

from __future__ import annotations

import time

from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.domain import views
from podium_console.web import arguments
from podium_console.web.arguments import installation

_ROWS, _MOST_ROWS = 50, 200
_BY = ("job", "project")
_MOST_DAYS = 36500


async def list_usage(request: Request) -> Response:
    """A page of rows `by` job, newest first, or by project; of the last so many `days`, or all."""
    query = request.query_params
    by = query.get("by", _BY[0])
    if by not in _BY:
        raise arguments.wrong("by", f"got {by[:40]!r}; allowed are {', '.join(_BY)}")
    message = pb.ListUsageRequest(
        project=query.get("project", ""),
        by_project=by == "project",
        page_size=arguments.size(request, _ROWS, _MOST_ROWS),
        page_token=query.get("after", ""),
    )
    if days := arguments.integer(request, "days", None, _MOST_DAYS):
        message.start_time.seconds = max(0, int(time.time()) - days * 86400)
    with rpc_errors("controller"):
        found = await installation(request).job_stub.ListUsage(message)
    rows = [
        {"job": each.job_id, "project": each.project, **views.usage(each.usage)}
        for each in found.rows
    ]
    budgets = [views.budget(each) for each in found.budgets]
    return JSONResponse({"rows": rows, "budgets": budgets, "next": found.next_page_token})
