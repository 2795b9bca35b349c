"""What is sent to a reward model, and read of it, is what the vLLM that is installed speaks."""

from __future__ import annotations

from typing import Any

import pytest
from podium.types.v1 import trajectory_pb2
from podium_judge.adapters import http_protocols
from pydantic import TypeAdapter


@pytest.fixture(scope="module")
def vllm() -> Any:
    """Its own forms of requests and answers."""
    pytest.importorskip("vllm")
    # A form that has moved is a failure, and no reason to skip.
    from vllm.entrypoints.pooling.classify import protocol as classify
    from vllm.entrypoints.pooling.pooling import protocol as pooling
    from vllm.entrypoints.serve.engine.protocol import UsageInfo

    return classify, pooling, UsageInfo(prompt_tokens=7, total_tokens=7)


def test_a_conversation_with_calls_is_taken_as_chat(vllm: Any) -> None:
    classify, pooling, _ = vllm
    history = trajectory_pb2.History()
    for role, content in (
        (trajectory_pb2.ROLE_SYSTEM, "s"),
        (trajectory_pb2.ROLE_USER, "q"),
        (trajectory_pb2.ROLE_ASSISTANT, ""),
        (trajectory_pb2.ROLE_TOOL, "7"),
        (trajectory_pb2.ROLE_ASSISTANT, "done"),
    ):
        history.messages.add(role=role, content=content)
    history.messages[2].tool_calls.add(id="c", name="find", arguments_json="{city")
    history.messages[3].tool_call_id = "c"
    body = {"use_activation": False, "truncate_prompt_tokens": -1, "truncation_side": "left"}
    body |= {"messages": http_protocols.chat_messages(history)}
    pooled = TypeAdapter(pooling.PoolingRequest).validate_python(body)
    classified = TypeAdapter(classify.ClassificationRequest).validate_python(body)
    assert isinstance(pooled, pooling.PoolingChatRequest)
    assert isinstance(classified, classify.ClassificationChatRequest)
    for request in (pooled, classified):
        assert len(request.messages) == 5
        assert request.use_activation is False
        assert (request.truncate_prompt_tokens, request.truncation_side) == (-1, "left")


@pytest.mark.parametrize("data", [[0.5], [[0.1], [0.5]]])
def test_a_pooled_answer_is_read(vllm: Any, data: Any) -> None:
    _, pooling, usage = vllm
    result = pooling.PoolingResponseData(index=0, data=data)
    answer = pooling.PoolingResponse(model="rm", data=[result], usage=usage)
    content = answer.model_dump_json().encode()
    assert http_protocols.pooled_score(content) == 0.5
    assert http_protocols.prompt_tokens(content) == 7


def test_a_classifiers_answer_is_read(vllm: Any) -> None:
    classify, _, usage = vllm
    result = classify.ClassificationData(index=0, label="x", probs=[0.25, 0.75], num_classes=2)
    answer = classify.ClassificationResponse(model="rm", data=[result], usage=usage)
    content = answer.model_dump_json().encode()
    assert http_protocols.class_score(content, 1) == 0.75
    assert http_protocols.prompt_tokens(content) == 7
