"""Who speaks in a conversation: the policy, another one, or an agent without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from podium.core.contract.players import AGENT, model_player_violations
from podium.core.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    Violation,
)
from podium.core.policy_names import parse_policy
from podium.core.tool_calls import id_of_call, parse_reply
from podium.environment.v1 import environment_service_pb2 as environment_pb
from podium.environments import Agent
from podium.environments.catalog import load
from podium.environments.serving.convert import message_to_pb, observation_from_pb
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics, spans
from podium_rollout.domain.conversation import MAIN, Conversations, History
from podium_rollout.domain.ports import PlayerModel, PlayerModels, Policy
from podium_rollout.domain.seeds import derive

_BASELINE = "baseline:"


class ContextFullError(Exception):
    """The next turn does not fit the context window."""


@dataclass
class TurnRef:
    """Which turn of which episode it is."""

    trajectory_id: str
    number: int
    observation: environment_pb.Observation
    """What led to it."""


class Speaker(Protocol):
    """Says the next turn of a conversation."""

    async def speak(self, conversations: Conversations, turn: TurnRef) -> pb.Message:
        """Adds its message to the conversation, with its tokens if it has any, and returns it.

        Raises:
            ContextFullError: there is no room left.
            PodiumError: it cannot act.
        """
        ...


@dataclass
class PolicySpeaker:
    """A policy that the pool serves."""

    pool: Policy
    policy: policy_pb2.PolicyRef
    request: rollout_pb.CollectGroupRequest
    capped: int = field(default=0, init=False)
    """Turns that had less room than max_tokens."""

    async def speak(self, conversations: Conversations, turn: TurnRef) -> pb.Message:
        """See `Speaker`."""
        try:
            response = await self._generate(conversations.history, turn)
        except FailedPreconditionError as error:
            if error.reason != "HISTORY_NOT_CONTINUABLE" or not len(conversations.history.record):
                raise
            response = await self._generate(conversations.split(), turn)
        generation, rendered = response.generation, response.rendered
        record = conversations.history.record
        context = _fresh(conversations.history, rendered)
        room = rendered.max_model_len - len(record) - len(context)
        if room < self.request.sampling.max_tokens:
            self.capped += 1
            metrics.CONTEXT_CAPPED.inc()
        record.context(context)
        record.sampled(generation, self.request.sampling.temperature)
        message = parse_reply(
            generation.text,
            rendered.call_format,
            conversations.history.calls,
            conversations.history.request.tools,
        )
        conversations.said(message)
        return message

    async def _generate(self, history: History, turn: TurnRef) -> inference_pb.GenerateResponse:
        # The record's end is enough to render on from, however long it is.
        history.request.prefix_ids[:] = history.record.token_ids[-1:]
        request = history.generate
        request.policy.CopyFrom(self.policy)
        request.sampling.CopyFrom(self.request.sampling)
        stop = self.request.episode.context_policy == spec_pb2.CONTEXT_POLICY_STOP
        request.require_room = stop
        if request.sampling.temperature > 0:
            request.sampling.seed = derive(self.request.seed, turn.trajectory_id, turn.number)
        try:
            with spans.chat(request, turn.number, turn.trajectory_id) as span:
                response = await self.pool.generate(request)
                spans.answered(span, response.generation)
            return response
        except InvalidArgumentError as error:
            if error.reason == "CONTEXT_LENGTH_EXCEEDED":
                raise ContextFullError from error
            raise


@dataclass
class AgentSpeaker:
    """A scripted agent or a baseline."""

    agent: Agent

    async def speak(self, conversations: Conversations, turn: TurnRef) -> pb.Message:
        """See `Speaker`; raises whatever the agent raises."""
        name = conversations.speaking
        seen = environment_pb.Observation(state=turn.observation.state)
        seen.tools.MergeFrom(turn.observation.tools)
        seen.messages.extend(m for m in turn.observation.messages if m.conversation == name)
        message = message_to_pb(await self.agent.act(observation_from_pb(seen)))
        message.role = pb.ROLE_ASSISTANT
        conversations.said(message)
        return message


@dataclass
class ModelSpeaker:
    """A model that this installation does not train."""

    model: PlayerModel
    name: str
    """Its name in traces."""
    seed: int
    """The episode's; a turn's is derived of it."""
    prompt_tokens: int = field(default=0, init=False)
    completion_tokens: int = field(default=0, init=False)

    async def speak(self, conversations: Conversations, turn: TurnRef) -> pb.Message:
        """See `Speaker`.

        Raises:
            PlayerFailedError: it gives no answer.
        """
        history = conversations.history
        # 31 bits: what APIs take is a signed integer.
        seed = derive(self.seed, turn.trajectory_id, "player", turn.number) % 2**31
        with spans.player(self.name, seed, history.request.messages, turn.number) as span:
            answer = await self.model.answer(history.request.messages, history.request.tools, seed)
            spans.player_answered(span, answer)
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        ids: set[str] = set()
        for number, call in enumerate(answer.message.tool_calls):
            call.id = id_of_call(call.id, ids, history.calls + number)
        conversations.said(answer.message)
        return answer.message


class Cast:
    """The speakers of one episode, by conversation."""

    def __init__(
        self,
        request: rollout_pb.CollectGroupRequest,
        trajectory_id: str,
        pool: Policy,
        models: PlayerModels | None,
    ) -> None:
        """Agents and models get a seed of the episode's.

        Raises:
            InvalidArgumentError: there is no such player.
        """
        self.policy = PolicySpeaker(pool, request.policy, request)
        """The one that is trained."""
        self._others: dict[str, Speaker] = {}
        self._models: list[ModelSpeaker] = []
        wrong = model_player_violations(request.episode, "episode")
        if wrong:
            raise InvalidArgumentError(violations=wrong)
        for name, player in sorted(request.episode.players.items()):
            field_name = f"episode.players[{name}]"
            if not player.startswith(_BASELINE):
                other = _policy(player, field_name)
                self._others[_conversation(name)] = PolicySpeaker(pool, other, request)
                continue
            maker = _baselines(request.environment, field_name)
            baseline = player.removeprefix(_BASELINE)
            if baseline not in maker:
                known = ", ".join(sorted(maker)) or "none"
                raise _wrong(field_name, f"got {player!r}; the environment's baselines are {known}")
            seed = derive(request.seed, trajectory_id, "player", name)
            self._others[_conversation(name)] = AgentSpeaker(maker[baseline](seed))
        for name, spec in sorted(request.episode.model_players.items()):
            where = f"episode.model_players[{name}]"
            if models is None:
                raise _wrong(where, "this service has no models play")
            model = models.player(spec, where)
            speaker = ModelSpeaker(model, spec.model, request.seed)
            self._models.append(speaker)
            self._others[_conversation(name)] = speaker

    def speaker(self, conversation: str) -> Speaker:
        """Who speaks in it."""
        return self._others.get(conversation, self.policy)

    def used(self) -> dict[str, float]:
        """Numbers of the trajectory that tell what its models took; none without a model."""
        if not self._models:
            return {}
        return {
            "player_prompt_tokens": float(sum(each.prompt_tokens for each in self._models)),
            "player_completion_tokens": float(sum(each.completion_tokens for each in self._models)),
        }

    def trained(self, conversation: str) -> bool:
        """Whether the policy speaks in it."""
        return conversation not in self._others


def _conversation(name: str) -> str:
    return MAIN if name == AGENT else name


def _baselines(
    environment: spec_pb2.EnvironmentSpec, field_name: str
) -> Mapping[str, Callable[[int], Agent]]:
    if environment.address:
        raise _wrong(field_name, "baselines are of built-in environments, and this one is served")
    return load(environment.name).baselines


def _policy(name: str, field_name: str) -> policy_pb2.PolicyRef:
    try:
        return parse_policy(name)
    except InvalidArgumentError:
        allowed = "`baseline:NAME`, `base`, `JOB` and `JOB@VERSION`"
        raise _wrong(field_name, f"got {name!r}; allowed are {allowed}") from None


def _wrong(field_name: str, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation(field_name, text)])


def _fresh(history: History, rendered: inference_pb.RenderResponse) -> Sequence[int]:
    """The prompt's tokens that are not in the record yet."""
    prefix = history.request.prefix_ids
    if rendered.token_ids[: len(prefix)] != prefix:
        raise InternalError("inference rendered a sampled turn again")
    del rendered.token_ids[: len(prefix)]
    return rendered.token_ids
