"""What the span of a turn says of the policy's call, in OpenTelemetry's names."""

from __future__ import annotations

from opentelemetry import trace
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.kit.telemetry import attributes
from podium.types.v1 import policy_pb2
from podium.types.v1 import trajectory_pb2 as pb


def asked(request: inference_pb.GenerateRequest) -> None:
    """Says on the turn's span what the model is asked with."""
    sampling, policy = request.sampling, request.policy
    span = trace.get_current_span()
    span.set_attributes(
        {
            attributes.GEN_AI_OPERATION_NAME: "chat",
            attributes.GEN_AI_PROVIDER_NAME: "podium",
            attributes.GEN_AI_REQUEST_MODEL: _policy_name(policy),
            attributes.GEN_AI_REQUEST_MAX_TOKENS: sampling.max_tokens,
            attributes.GEN_AI_REQUEST_TEMPERATURE: sampling.temperature,
        }
    )
    if sampling.HasField("seed"):
        span.set_attribute(attributes.GEN_AI_REQUEST_SEED, sampling.seed)


def answered(generation: inference_pb.Generation) -> None:
    """Says on the turn's span what came of it."""
    reason = pb.FinishReason.Name(generation.finish_reason).removeprefix("FINISH_REASON_")
    trace.get_current_span().set_attributes(
        {
            attributes.GEN_AI_RESPONSE_ID: generation.request_id,
            attributes.GEN_AI_RESPONSE_FINISH_REASONS: (reason.lower(),),
            attributes.WEIGHTS_VERSION: generation.weights_version,
        }
    )


def _policy_name(policy: policy_pb2.PolicyRef) -> str:
    name = policy.job or "base"
    return f"{name}@{policy.version}" if policy.HasField("version") else name
