"""What the controller sends to an API server, against one of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from podium.kit.kubernetes.api import JOBS, ClusterApi
from podium_controller.cluster.jobset import JOBSETS

SERVED = "/apis/jobset.x-k8s.io/v1alpha2"


@asynccontextmanager
async def serving(asked: list[Any]) -> AsyncIterator[ClusterApi]:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        asked.append((request.method, request.path, body))
        if request.method == "GET" and request.path != SERVED:
            return web.json_response({"message": "page not found"}, status=404)
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
    async with ApiClient(configuration) as client:
        try:
            yield ClusterApi(client, "here")
        finally:
            await server.close()


async def test_a_version_of_an_api_is_asked_for_by_its_name() -> None:
    asked: list[Any] = []
    async with serving(asked) as api:
        assert await api.serves(JOBSETS.api_version)
        assert not await api.serves("jobset.x-k8s.io/v9")
    assert [path for _, path, _ in asked] == [SERVED, "/apis/jobset.x-k8s.io/v9"]


@pytest.mark.parametrize(
    ("resource", "path", "policy"),
    [
        (JOBS, "/apis/batch/v1/namespaces/here/jobs/a", "Background"),
        (JOBSETS, f"{SERVED}/namespaces/here/jobsets/a", "Foreground"),
    ],
)
async def test_a_job_set_goes_after_its_jobs_and_a_job_before_its_pods(
    resource: Any, path: str, policy: str
) -> None:
    asked: list[Any] = []
    async with serving(asked) as api:
        await api.delete(resource, "a", "uid-1")
    body = {"propagationPolicy": policy, "preconditions": {"uid": "uid-1"}}
    assert asked == [("DELETE", path, body)]
