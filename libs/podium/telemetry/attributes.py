"""Names of span attributes: OpenTelemetry's where it has one, `podium.*` else.

The GenAI names are those of open-telemetry/semantic-conventions-genai, the rpc
names those of the stable RPC conventions. Both still move, so they live here
and nowhere else.
"""

from __future__ import annotations

from typing import Final

RPC_SYSTEM_NAME: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_RESPONSE_STATUS_CODE: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
CLIENT_ADDRESS: Final = "client.address"
SERVER_ADDRESS: Final = "server.address"

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
"""`chat`, `text_completion`, `invoke_agent`, `execute_tool`."""
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_REQUEST_SEED: Final = "gen_ai.request.seed"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_EVALUATION_NAME: Final = "gen_ai.evaluation.name"
GEN_AI_EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
GEN_AI_EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

JOB_ID: Final = "podium.job.id"
STEP: Final = "podium.step"
PHASE: Final = "podium.phase"
GROUP_ID: Final = "podium.group.id"
TRAJECTORY_ID: Final = "podium.trajectory.id"
SCENARIO_ID: Final = "podium.scenario.id"
ENVIRONMENT_NAME: Final = "podium.environment.name"
POLICY: Final = "podium.policy"
WEIGHTS_VERSION: Final = "podium.weights.version"
TURN: Final = "podium.turn"
STOP_REASON: Final = "podium.stop_reason"
REWARD: Final = "podium.reward"
SCORER: Final = "podium.scorer"
