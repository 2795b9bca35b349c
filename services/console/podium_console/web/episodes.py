"""Episodes: a page of rows, and one to read."""

from __future__ import annotations

from podium.core.errors import NotFoundError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import trajectory_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.domain import episodes
from podium_console.web import arguments
from podium_console.web.arguments import installation

_ROWS, _MOST_ROWS = 50, 100
# An episode is found by its step: one is read, not shown, for each before it.
_SEARCH_PAGE, _MOST_SEARCHED = 50, 5000


async def list_episodes(request: Request) -> Response:
    """A page of a job's episodes: all, a step's, or an evaluated version's."""
    query = request.query_params
    message = pb.ListTrajectoriesRequest(
        job_id=request.path_params["job"],
        step=arguments.integer(request, "step"),
        evaluation=query.get("evaluation") == "1",
        page_size=arguments.size(request, _ROWS, _MOST_ROWS),
        page_token=query.get("after", ""),
    )
    with rpc_errors("controller"):
        found = await installation(request).job_stub.ListTrajectories(message)
    rows = [episodes.row(each) for each in found.trajectories]
    return JSONResponse({"episodes": rows, "next": found.next_page_token})


async def get_episode(request: Request) -> Response:
    """One episode, its messages from `start`."""
    start = arguments.integer(request, "start", 0) or 0
    template = arguments.settings(request).trace_url
    return JSONResponse(episodes.whole(await _find(request), start, template))


async def get_text(request: Request) -> Response:
    """The rest of a text that was cut."""
    message = arguments.integer(request, "message", 0) or 0
    offset = arguments.integer(request, "offset", 0) or 0
    part = request.query_params.get("part", "content")
    return JSONResponse(episodes.text_slice(await _find(request), message, part, offset))


async def _find(request: Request) -> trajectory_pb2.Trajectory:
    """The episode with an id. Where its page begins makes it quick, and is not needed."""
    wanted = request.query_params.get("id", "")
    where = episodes.place(wanted)
    message = pb.ListTrajectoriesRequest(
        job_id=request.path_params["job"],
        step=where.step,
        evaluation=where.evaluation,
        page_size=_SEARCH_PAGE,
    )
    seen = 0
    while seen < _MOST_SEARCHED:
        with rpc_errors("controller"):
            found = await installation(request).job_stub.ListTrajectories(message)
        for each in found.trajectories:
            if each.id == wanted:
                return each
        seen += len(found.trajectories)
        message.page_token = found.next_page_token
        if not message.page_token:
            break
    raise NotFoundError(f"there is no episode {wanted[:200]!r}; it may have been deleted")
