"""Jobs: lists, curves, events, and what can be done with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from podium.core.contract import fork_alias, parse_yaml
from podium.core.contract.nodes import compose
from podium.core.errors import InvalidArgumentError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.domain import series, views
from podium_console.web import arguments, replies
from podium_console.web.arguments import installation

_ROWS, _MOST_ROWS = 25, 50
_EVENTS, _MOST_EVENTS = 100, 200
_EVALUATIONS = 1000
_YAML = 500_000


async def list_jobs(request: Request) -> Response:
    """A page of jobs, newest first."""
    query = request.query_params
    message = pb.ListJobsRequest(
        page_size=arguments.size(request, _ROWS, _MOST_ROWS),
        page_token=query.get("after", ""),
        project=query.get("project", ""),
    )
    with rpc_errors("controller"):
        found = await installation(request).job_stub.ListJobs(message)
    rows = [views.job_row(job) for job in found.jobs]
    return JSONResponse({"jobs": rows, "next": found.next_page_token})


async def get_job(request: Request) -> Response:
    """One job, with its specification."""
    job = await installation(request).job(request.path_params["job"])
    return JSONResponse(views.whole_job(job))


async def list_steps(request: Request) -> Response:
    """Steps' numbers, by columns: those of `names`, at most so many `points`, of steps `after`."""
    names = [name for name in request.query_params.get("names", "").split(",") if name]
    after = arguments.integer(request, "after", 0) or 0
    most = arguments.integer(request, "points", series.MAX_POINTS, series.MAX_POINTS)
    found = await installation(request).history.steps(request.path_params["job"])
    return JSONResponse(found.plain(names, most or series.MAX_POINTS, after))


async def list_evaluations(request: Request) -> Response:
    """The evaluations; of very many the newest."""
    found = await installation(request).history.evaluations(request.path_params["job"])
    return JSONResponse({"evaluations": found.newest(_EVALUATIONS), "total": len(found)})


async def list_events(request: Request) -> Response:
    """The newest events before a sequence number, oldest first; the last one, and what is open."""
    size = arguments.size(request, _EVENTS, _MOST_EVENTS)
    before = arguments.integer(request, "before")
    found = await installation(request).history.events(request.path_params["job"])
    page = {"events": found.before(before, size), "last": found.last, "open": found.open}
    return JSONResponse(page)


async def watch(request: Request) -> Response:
    """What happens to a job, told as it happens; a browser that reconnects goes on where it was."""
    seen = request.headers.get("last-event-id", "") or request.query_params.get("after", "")
    after = arguments.whole_number("after", seen, 0, 2**63 - 1) or 0
    here, job_id = installation(request), request.path_params["job"]

    async def source() -> AsyncIterator[bytes]:
        call = here.job_stub.WatchJob(pb.WatchJobRequest(job_id=job_id, after_sequence=after))
        try:
            with rpc_errors("controller"):
                async for update in call:
                    yield replies.event("update", views.update(update), update.event.sequence)
        finally:
            call.cancel()
        # A server that drains may close a stream of a job that goes on.
        if (await here.jobs.get(job_id)).state not in views.ENDED:
            raise UnavailableError("the controller closed the stream")
        yield replies.event("end", {})

    # What is wrong with the job is this answer's status, which a page can show.
    await here.jobs.get(job_id)
    return replies.event_stream(request, source())


async def create(request: Request) -> Response:
    """Makes a job of a job file's text, or with `dry_run` checks it."""
    body = await arguments.body(request)
    text = arguments.text(body, "text", _YAML)
    job_id = arguments.text(body, "id", 63)
    dry_run = body.get("dry_run") is True
    here = installation(request)
    spec, alias = _read(text)
    await fork_alias.resolve(spec, alias, here.checkpoints.get)
    message = pb.CreateJobRequest(
        job=pb.Job(id=job_id, spec=spec),
        request_id=arguments.text(body, "request_id", 128),
        validate_only=dry_run,
    )
    with rpc_errors("controller"):
        made = await here.job_stub.CreateJob(message)
    warnings = [views.cut(warning) for warning in made.warnings]
    return JSONResponse({"job": views.whole_job(made.job), "warnings": warnings})


async def steer(request: Request) -> Response:
    """Pauses, resumes or cancels."""
    jobs, job_id = installation(request).jobs, request.path_params["job"]
    act = {"pause": jobs.pause, "resume": jobs.resume, "cancel": jobs.cancel}
    name = request.path_params["action"]
    if name not in act:
        raise arguments.wrong("action", f"got {name[:40]!r}; allowed are {', '.join(act)}")
    return JSONResponse(views.job(await act[name](job_id)))


def _read(text: str) -> tuple[spec_pb2.JobSpec, str]:
    """A job file, with the alias of the version to fork.

    Raises:
        InvalidArgumentError: with every violation, each with its line.
    """
    _, problems = compose(text)
    alias = ""
    spec, violations = parse_yaml(text, spec_pb2.JobSpec)
    if not problems:
        alias, problems, _ = fork_alias.take_alias(text, violations, ())
    if problems:
        raise InvalidArgumentError(
            violations=sorted(problems, key=lambda each: each.line), reason="INVALID_JOB"
        )
    return spec, alias
