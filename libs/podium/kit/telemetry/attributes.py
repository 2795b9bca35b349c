"""Names of span attributes: OpenTelemetry's where it has one, `podium.*` else.

The GenAI names are those of open-telemetry/semantic-conventions-genai, the rpc
names those of the stable RPC conventions. Both still move, so they live here
and nowhere else: a test looks for names that are written elsewhere, and for
those here that nobody uses.
"""

from __future__ import annotations

from typing import Final

SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"

RPC_SYSTEM_NAME: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_RESPONSE_STATUS_CODE: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
CLIENT_ADDRESS: Final = "client.address"
SERVER_ADDRESS: Final = "server.address"

SESSION_ID: Final = "session.id"

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_SEED: Final = "gen_ai.request.seed"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
# What is said, only where `telemetry.content` is wanted.
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
# On the engine's `generate` alone: who adds up a trace counts every token once.
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
# Part of the input's.
GEN_AI_USAGE_CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"

JOB_ID: Final = "podium.job.id"
STEP: Final = "podium.step"
PHASE: Final = "podium.phase"
GROUP_ID: Final = "podium.group.id"
TRAJECTORY_ID: Final = "podium.trajectory.id"
TRAJECTORIES: Final = "podium.trajectories"
SCENARIO_ID: Final = "podium.scenario.id"
STOP_REASON: Final = "podium.stop_reason"
ENVIRONMENT_REWARD: Final = "podium.environment.reward"
TOOL_CALLS: Final = "podium.tool_calls"
ENVIRONMENT_NAME: Final = "podium.environment.name"
WEIGHTS_VERSION: Final = "podium.weights.version"
TURN: Final = "podium.turn"
TURNS: Final = "podium.turns"


def phase_seconds(phase: str) -> str:
    """What the seconds of one phase of an optimizer step are called."""
    return f"podium.phase.{phase}.seconds"
