"""Chat over gRPC with the real model: a random one fills a schema's gaps with blanks for ever."""

from __future__ import annotations

import json

import pytest
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import connect
from podium.local.launcher import Launcher
from podium.types.v1 import policy_pb2, trajectory_pb2

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(300),
]

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "large": {"type": "boolean"},
    },
    "required": ["city", "large"],
    "additionalProperties": False,
}


async def test_a_schema_guides_what_is_sampled(real_stack: Launcher) -> None:
    """Whatever the policy is then; five draws at a temperature that would ramble without it."""
    channel = connect(real_stack.address("inference"))
    engine = pb_grpc.InferenceServiceStub(channel)
    (served, *_) = (await engine.ListPolicies(pb.ListPoliciesRequest())).policies
    for seed in range(5):
        reply = await engine.Chat(
            pb.ChatRequest(
                policy=policy_pb2.PolicyRef(job=served.job),
                messages=[
                    trajectory_pb2.Message(
                        role=trajectory_pb2.ROLE_USER, content="Name a city, as JSON."
                    )
                ],
                sampling=policy_pb2.SamplingParams(
                    temperature=1.0, max_tokens=200, seed=seed, json_schema=json.dumps(SCHEMA)
                ),
            ),
            timeout=60,
        )
        answer = json.loads(reply.message.content)
        assert set(answer) == {"city", "large"}
        assert len(answer["city"]) <= 12
        assert isinstance(answer["large"], bool)
    await channel.close()
