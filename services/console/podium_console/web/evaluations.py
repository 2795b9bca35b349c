"""Evaluations that clients measured and stored: a list, one, and two against each other."""

from __future__ import annotations

from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.domain import evaluations
from podium_console.web import arguments
from podium_console.web.arguments import installation

_ROWS, _MOST_ROWS = 25, 100
_SCENARIOS, _MOST_SCENARIOS = 100, 500


async def list_stored(request: Request) -> Response:
    """A page of stored evaluations, newest first; of a project, environment, job or name alone."""
    query = request.query_params
    message = pb.ListStoredEvaluationsRequest(
        project=query.get("project", ""),
        environment=query.get("environment", ""),
        job_id=query.get("job", ""),
        name=query.get("name", ""),
        page_size=arguments.size(request, _ROWS, _MOST_ROWS),
        page_token=query.get("after", ""),
    )
    with rpc_errors("controller"):
        found = await installation(request).evaluation_stub.ListStoredEvaluations(message)
    rows = [evaluations.stored_row(each) for each in found.evaluations]
    return JSONResponse({"evaluations": rows, "next": found.next_page_token})


async def get_stored(request: Request) -> Response:
    """One, with what its numbers depend on."""
    message = pb.GetStoredEvaluationRequest(evaluation_id=request.path_params["evaluation"])
    with rpc_errors("controller"):
        found = await installation(request).evaluation_stub.GetStoredEvaluation(message)
    return JSONResponse(evaluations.stored(found.evaluation))


async def list_scenarios(request: Request) -> Response:
    """A page of its scenarios, in its order."""
    message = pb.ListScenarioResultsRequest(
        evaluation_id=request.path_params["evaluation"],
        page_size=arguments.size(request, _SCENARIOS, _MOST_SCENARIOS),
        page_token=request.query_params.get("after", ""),
    )
    with rpc_errors("controller"):
        found = await installation(request).evaluation_stub.ListScenarioResults(message)
    rows = [evaluations.scenario(each) for each in found.results]
    return JSONResponse({"scenarios": rows, "next": found.next_page_token})


async def compare(request: Request) -> Response:
    """The evaluation `b` against `a`, paired by scenario; `common=1` for those that both have."""
    ids = {name: request.query_params.get(name, "") for name in ("a", "b")}
    for name, value in ids.items():
        if not value:
            raise arguments.wrong(name, "is required: the id of a stored evaluation")
    common = bool(arguments.integer(request, "common", 0, 1))
    comparisons = installation(request).comparisons
    return JSONResponse(await comparisons.look(ids["a"], ids["b"], common=common))
