"""A judge service that asks a scorer over HTTP at an address that its operator has named."""

from __future__ import annotations

import json
from typing import Any

import httpx
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import Answer, Behaviour, FakeJudge
from support.judging import JudgeBench, group_of

SCORE = spec_pb2.HTTP_SCORER_PROTOCOL_SCORE
CLASSIFY = spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY
POOLING = spec_pb2.HTTP_SCORER_PROTOCOL_POOLING


def answers(body: Any, status: int = 200) -> Behaviour:
    text = body if isinstance(body, str) else json.dumps(body)
    return lambda _: Answer(status, text.encode())


def root(server: FakeJudge) -> str:
    return server.base_url.removesuffix("/v1")


class Bench(JudgeBench):
    """The servicer, and a scorer at an address that its operator has named."""

    def __init__(
        self, judge: FakeJudge, scorer: FakeJudge, client: httpx.AsyncClient, **settings: Any
    ) -> None:
        super().__init__(judge, client, **{"trusted_base_urls": (root(scorer),)} | settings)
        self.scorer = scorer

    def spec(self, protocol: Any = SCORE, weight: float = 1, **fields: Any) -> spec_pb2.Scorer:
        fields = {"base_url": root(self.scorer), "protocol": protocol} | fields
        http = spec_pb2.HttpScorerSpec(**fields)
        return spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, weight=weight, http=http)

    async def scored(self, *attempts: Any, **fields: Any) -> trajectory_pb2.Group:
        return (await self.rewarded(group_of(*attempts), self.spec(**fields))).group


def rewarding(reward: Any, read: Any = 7) -> Behaviour:
    """vLLM's answer to `/pooling` for a conversation, from its last message."""

    def behave(request: dict[str, Any]) -> Answer:
        last = request["messages"][-1]["content"]
        body = {
            "object": "list",
            "model": "rm",
            "data": [{"index": 0, "object": "pooling", "data": reward(int(last.split()[-1]))}],
            "usage": {"prompt_tokens": read, "total_tokens": read},
        }
        return Answer(body=json.dumps(body).encode())

    return behave
