"""The spans of an episode: a trace of its own, in OpenTelemetry's GenAI names.

`invoke_agent` is its root; below it `environment_reset`, a `chat` and an `environment_step` a
turn, with `execute_tool` for each call, and `environment_score`. What is said stands on none
of them, unless whoever runs the service asks for it (see `telemetry.content`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue
from podium.core.means import total_of
from podium.core.outside import count_of
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.kit.telemetry import Around, attributes, content, traced, tracer, unkept
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain.ports import PlayerAnswer

_PROVIDER = "podium"
_UNKNOWN_TOOL = "_unknown"
"""Stands for a name that the model made up: what it says is content, and without bound."""
_MAX_TOOL_SPANS = 16
"""Of one turn; a model may call without end."""

_UNKNOWN = "unknown"
"""A reason that a newer engine gives."""


def _short(name: str) -> str:
    return name.partition("REASON_")[2].lower()


_FINISHED = {value: _short(name) for name, value in pb.FinishReason.items()}

_tracer = tracer(__name__)


def rollout(
    request: rollout_pb.CollectGroupRequest, trajectory_id: str
) -> AbstractContextManager[trace.Span]:
    """The root of an episode's trace, linked to the call that asked for its group."""
    told: dict[str, AttributeValue] = {
        attributes.GEN_AI_OPERATION_NAME: "invoke_agent",
        attributes.GEN_AI_PROVIDER_NAME: _PROVIDER,
        attributes.GEN_AI_AGENT_NAME: request.environment.name,
        attributes.GEN_AI_REQUEST_MODEL: _policy_name(request.policy),
        attributes.GEN_AI_CONVERSATION_ID: trajectory_id,
        attributes.SESSION_ID: request.group_id,
        attributes.JOB_ID: request.job_id,
        attributes.STEP: request.step,
        attributes.GROUP_ID: request.group_id,
        attributes.TRAJECTORY_ID: trajectory_id,
        attributes.SCENARIO_ID: request.scenario.id,
        attributes.ENVIRONMENT_NAME: request.environment.name,
    }
    return traced(_tracer, f"invoke_agent {request.environment.name}", told, root=True)


def ended(span: trace.Span, trajectories: Sequence[pb.Trajectory]) -> None:
    """Says on the root how the episode went."""
    if not span.is_recording():
        return
    main = trajectories[0]
    span.set_attribute(attributes.STOP_REASON, _short(pb.StopReason.Name(main.stop_reason)))
    # Environments may tell a metric of that name.
    turns = total_of(each.metrics["turns"] for each in trajectories)
    span.set_attribute(attributes.TURNS, count_of(turns))
    if main.HasField("environment_reward"):
        span.set_attribute(attributes.ENVIRONMENT_REWARD, main.environment_reward)
    if content.wanted() and main.histories:
        said = main.histories[0].messages
        first = next((i for i, m in enumerate(said) if m.role == pb.ROLE_ASSISTANT), len(said))
        span.set_attribute(attributes.GEN_AI_INPUT_MESSAGES, content.messages(said[:first]))
        if tools := main.histories[0].tools:
            span.set_attribute(attributes.GEN_AI_TOOL_DEFINITIONS, content.tools(tools))
        last = [m for m in main.histories[-1].messages if m.role == pb.ROLE_ASSISTANT][-1:]
        span.set_attribute(attributes.GEN_AI_OUTPUT_MESSAGES, content.messages(last))


def chat(
    request: inference_pb.GenerateRequest, turn: int, trajectory_id: str
) -> AbstractContextManager[trace.Span]:
    """One call of a policy."""
    if (dropped := unkept()) is not None:
        return nullcontext(dropped)
    sampling, policy = request.sampling, request.policy
    told: dict[str, AttributeValue] = {
        attributes.GEN_AI_OPERATION_NAME: "chat",
        attributes.GEN_AI_PROVIDER_NAME: _PROVIDER,
        attributes.GEN_AI_REQUEST_MODEL: _policy_name(policy),
        attributes.GEN_AI_REQUEST_MAX_TOKENS: sampling.max_tokens,
        attributes.GEN_AI_REQUEST_TEMPERATURE: sampling.temperature,
        attributes.GEN_AI_CONVERSATION_ID: trajectory_id,
        attributes.TURN: turn,
    }
    if sampling.HasField("seed"):
        told[attributes.GEN_AI_REQUEST_SEED] = sampling.seed
    if content.wanted():
        told[attributes.GEN_AI_INPUT_MESSAGES] = content.messages(request.render.messages)
    # Without the version: names of spans are to be few.
    name = f"chat {policy.job or 'base'}"
    # Not `traced`, which would ask again whether it is kept.
    return Around(_tracer.start_span(name, None, SpanKind.CLIENT, told))


def answered(span: trace.Span, generation: inference_pb.Generation) -> None:
    """Says on the span of a call what came of it; its tokens are on the engine's."""
    if not span.is_recording():
        return
    reason = _FINISHED.get(generation.finish_reason, _UNKNOWN)
    span.set_attributes(
        {
            attributes.GEN_AI_RESPONSE_ID: generation.request_id,
            attributes.GEN_AI_RESPONSE_FINISH_REASONS: (reason,),
            attributes.WEIGHTS_VERSION: generation.weights_version,
        }
    )
    if content.wanted():
        said = pb.Message(role=pb.ROLE_ASSISTANT, content=generation.text)
        span.set_attribute(attributes.GEN_AI_OUTPUT_MESSAGES, content.messages([said], reason))


def player(
    model: str, seed: int, messages: Sequence[pb.Message], turn: int
) -> AbstractContextManager[trace.Span]:
    """One call of a model that plays beside the policy."""
    told: dict[str, AttributeValue] = {
        attributes.GEN_AI_OPERATION_NAME: "chat",
        attributes.GEN_AI_REQUEST_MODEL: model,
        attributes.GEN_AI_REQUEST_SEED: seed,
        attributes.TURN: turn,
    }
    if content.wanted():
        told[attributes.GEN_AI_INPUT_MESSAGES] = content.messages(messages)
    # Without the model: jobs name it, and names of spans are to be few.
    return traced(_tracer, "chat player", told)


def player_answered(span: trace.Span, answer: PlayerAnswer) -> None:
    """Says on the span of a player's call what came of it."""
    if not span.is_recording():
        return
    span.set_attribute(attributes.GEN_AI_USAGE_INPUT_TOKENS, answer.prompt_tokens)
    span.set_attribute(attributes.GEN_AI_USAGE_OUTPUT_TOKENS, answer.completion_tokens)
    if content.wanted():
        span.set_attribute(attributes.GEN_AI_OUTPUT_MESSAGES, content.messages([answer.message]))


def environment(name: str) -> AbstractContextManager[trace.Span]:
    """A call of the environment: `environment_reset`, `environment_score`."""
    return traced(_tracer, name)


class Acting:
    """A step of the environment, with a span for each tool that it executes.

    All calls of a turn are one step, wherever the environment runs: each span is as long as it.
    """

    def __init__(self, action: pb.Message, tools: Sequence[pb.Tool], turn: int) -> None:
        """`tools` are those that were on offer."""
        self._known = {tool.name for tool in tools} if action.tool_calls else frozenset[str]()
        self._calls = action.tool_calls
        self._turn = turn
        self._spans: dict[str, trace.Span] = {}
        self._step: AbstractContextManager[trace.Span] | None = None

    def __enter__(self) -> Acting:
        if unkept() is None:
            told: dict[str, AttributeValue] = {attributes.TURN: self._turn}
            if self._calls:
                told[attributes.TOOL_CALLS] = len(self._calls)
            self._step = Around(_tracer.start_span("environment_step", attributes=told))
            self._step.__enter__()
            for call in self._calls[:_MAX_TOOL_SPANS]:
                self._spans[call.id] = self._begin(call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for span in self._spans.values():
            span.end()
        if self._step is not None:
            self._step.__exit__(kind, error, traceback)

    def answered(self, messages: Sequence[pb.Message]) -> None:
        """What the tools said, where that is wanted."""
        if not (self._spans and content.wanted()):
            return
        for message in messages:
            if span := self._spans.get(message.tool_call_id):
                span.set_attribute(attributes.GEN_AI_TOOL_CALL_RESULT, content.cut(message.content))

    def _begin(self, call: pb.ToolCall) -> trace.Span:
        name = call.name if call.name in self._known else _UNKNOWN_TOOL
        told: dict[str, AttributeValue] = {
            attributes.GEN_AI_OPERATION_NAME: "execute_tool",
            attributes.GEN_AI_TOOL_NAME: name,
            attributes.GEN_AI_TOOL_CALL_ID: call.id,
        }
        if content.wanted():
            told[attributes.GEN_AI_TOOL_CALL_ARGUMENTS] = content.cut(call.arguments_json)
        return _tracer.start_span(f"execute_tool {name}", attributes=told)


def _policy_name(policy: policy_pb2.PolicyRef) -> str:
    name = policy.job or "base"
    return f"{name}@{policy.version}" if policy.HasField("version") else name
