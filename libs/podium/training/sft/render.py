"""Conversations as trajectories: tokens by the pool's own chat template."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.outside import clean
from podium.core.tasks import cancel_and_wait
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training.sft.files import ReadRows, first_violations
from podium.training.sft.packed import PackedConversations
from podium.training.sft.rows import Conversation
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

logger = logging.getLogger(__name__)

Demonstrate = Callable[
    [inference_pb.RenderDemonstrationRequest],
    Awaitable[inference_pb.RenderDemonstrationResponse],
]
"""Renders one conversation."""

NEW = "new"
"""Stands for the ids that the controller gives."""

LEAST_ROW_TOKENS = 4096
"""Of a job that names no training.max_row_tokens, where the pool's context window is less."""

_AT_ONCE = 8
_MANY = 10_000
"""Rows after which it is told again how far it is."""
_MOST_NAME = 256


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A row in tokens, ready to be sent."""

    where: str
    """The row's name, which becomes its scenario's id."""
    body: bytes
    """Its trajectory. As bytes, since a file may have a hundred thousand rows."""

    def group(self, split: str = "") -> pb.Group:
        """The group of one that it is sent as."""
        scenario = pb.Scenario(id=clean(self.where)[-_MOST_NAME:], split=split)
        one = pb.Trajectory.FromString(self.body)
        return pb.Group(id=NEW, scenario=scenario, trajectories=[one])


def demonstration(where: str, histories: Iterable[pb.History]) -> Demonstration:
    """Of histories with their tokens."""
    made = pb.Trajectory(
        id=NEW,
        group_id=NEW,
        scenario_id=NEW,
        histories=histories,
        stop_reason=pb.STOP_REASON_TERMINATED,
    )
    return Demonstration(where, made.SerializeToString(deterministic=True))


async def rendered(
    rows: PackedConversations,
    demonstrate: Demonstrate,
    episode: spec_pb2.EpisodeSpec,
    max_tokens: int = 0,
    *,
    skip_bad: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[Demonstration]:
    """Every row in tokens, in order.

    Args:
        rows: are let go of as they are rendered, and none is left in it.
        episode: what templates are told, and how of tools.
        max_tokens: of the longest row that trains; 0 for the default of jobs.
        skip_bad: rows that the template refuses, and those that are too long, are left out,
            counted and logged.
        say: is told how far it is, of so many rows that it takes a while.

    Raises:
        InvalidArgumentError: every such row, or none is left.
    """
    found: list[Demonstration | list[Violation]] = []
    waiting: list[asyncio.Task[Demonstration | list[Violation]]] = []
    count = len(rows)
    try:
        for row in rows.taken():
            if len(waiting) == _AT_ONCE:
                found.append(await waiting.pop(0))
                if len(found) % _MANY == 0:
                    say(f"{len(found)} of {count} rows are in tokens")
            waiting.append(asyncio.create_task(_one(row, demonstrate, episode, max_tokens)))
        while waiting:
            found.append(await waiting.pop(0))
    finally:
        await cancel_and_wait(*waiting)
    wrong = ReadRows()
    kept = []
    for each in found:
        if isinstance(each, Demonstration):
            kept.append(each)
        else:
            wrong.skipped += 1
            wrong.bad += each if len(wrong.bad) < _MOST_NAME else []
    violations = first_violations(wrong)
    if violations and (not skip_bad or not kept):
        raise InvalidArgumentError(violations=violations, reason="INVALID_ROWS")
    if violations:
        shown = "; ".join(map(str, violations[:_AT_ONCE]))
        logger.warning("%d rows are left out: %s", wrong.skipped, shown)
    return kept


async def _one(
    row: Conversation,
    demonstrate: Demonstrate,
    episode: spec_pb2.EpisodeSpec,
    max_tokens: int,
) -> Demonstration | list[Violation]:
    request = inference_pb.RenderDemonstrationRequest(
        messages=row.messages,
        tools=row.tools,
        trained=row.trained,
        tool_format=episode.tool_format,
        chat_template_kwargs=episode.chat_template_kwargs,
    )
    try:
        response = await demonstrate(request)
    except InvalidArgumentError as error:
        return [
            Violation(f"{row.where}: {each.field}", each.description) for each in error.violations
        ] or [Violation(row.where, error.message)]
    longest = max(map(_context, response.demonstrations), default=0)
    allowed = max_tokens or max(LEAST_ROW_TOKENS, response.max_model_len)
    if longest > allowed:
        text = f"has {longest} tokens; allowed are {allowed}, the job's training.max_row_tokens"
        return [Violation(row.where, text)]
    return demonstration(
        row.where,
        (
            pb.History(messages=row.messages[: each.messages], tools=row.tools, tokens=each.tokens)
            for each in response.demonstrations
        ),
    )


def _context(made: inference_pb.Demonstration) -> int:
    """Tokens that the trainer reads of it: the last one that trains predicts nothing."""
    span = made.tokens.spans[-1]
    return span.start + span.length - 1


def duplicates(rows: Iterable[Demonstration]) -> int:
    """How many rows are there already, token for token."""
    return sum(count - 1 for count in Counter(row.body for row in rows).values())
