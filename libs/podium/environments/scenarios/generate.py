"""Tasks for an agent, made by a model from the descriptions of its tools (ART's MCP-RL)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podium.chat import PromptTooLongError, RequestRefusedError, StructuredChat, Usage
from podium.core.errors import InvalidArgumentError, PodiumError, UnavailableError, Violation
from podium.environments.scenarios import prompt
from podium.environments.scenarios.prompt import LEVELS, AnswerError
from podium.environments.scenarios.similar import KnownTasks
from podium.environments.scenarios.splits import HELDOUT, TRAIN, content_key, made_id
from podium.environments.types import Scenario, Tool

log = logging.getLogger(__name__)

MOST_SCENARIOS = 10_000
_BATCH = 12
_FRUITLESS = 3
_ECHO = 4000


@dataclass
class Generated:
    """Scenarios, what they cost, and what was left out."""

    scenarios: list[Scenario] = field(default_factory=list)
    """`data` has `task` and `difficulty`, 1 to 5; by difficulty, held-out ones spread evenly."""
    usage: Usage = field(default_factory=Usage)
    refused: Counter[str] = field(default_factory=Counter)
    """Why tasks were left out: `duplicate`, `names_a_tool`, `task`, `difficulty`, `answer`."""
    shortfall: str = ""
    """Why there are fewer than were asked for; empty when there are not."""

    @property
    def difficulties(self) -> Counter[int]:
        """Scenarios by difficulty."""
        return Counter(int(scenario.data["difficulty"]) for scenario in self.scenarios)


async def generate_scenarios(
    tools: Sequence[Tool],
    resources: Sequence[Mapping[str, str]] = (),
    num_scenarios: int = 24,
    *,
    chat: StructuredChat,
    custom_instructions: str = "",
    heldout: float = 0.2,
    known: Sequence[str] = (),
    max_cost: float = 0.0,
) -> Generated:
    """Asks until there are `num_scenarios` different tasks, as many of each difficulty.

    A useless answer is sent back once with what is wrong with it; of a partly useful one the
    good tasks count. It gives up after three rounds without a new task, and keeps what it has.

    Args:
        tools: of the agent.
        resources: of the server, `uri`, `name` and `description`.
        num_scenarios: how many.
        chat: the model that writes them.
        custom_instructions: further words to it.
        heldout: share held out, at least one unless it is 0.
        known: tasks that are there already, and not to be written again.
        max_cost: no further call is made beyond it, in the unit of the model's prices; 0 for no
            bound.

    Raises:
        InvalidArgumentError: neither tools nor resources, or a number out of range.
        FailedPreconditionError: wrong key, address or model name.
        UnavailableError: the model cannot be reached, or no answer was of use, before there was
            any task.
    """
    _check(tools, resources, num_scenarios, heldout)
    maker = _Maker(tools, resources, chat, custom_instructions, known, max_cost)
    try:
        await maker.make(num_scenarios)
    except (UnavailableError, RequestRefusedError) as error:
        text = error.message if isinstance(error, PodiumError) else str(error)
        maker.made.shortfall = text
    if not maker:
        raise UnavailableError(f"no task was made: {maker.made.shortfall}", reason="NO_SCENARIOS")
    maker.made.scenarios = _split(maker.chosen(num_scenarios), heldout)
    return maker.made


class _Maker:
    """The tasks so far, and the rounds that make more."""

    def __init__(
        self,
        tools: Sequence[Tool],
        resources: Sequence[Mapping[str, str]],
        chat: StructuredChat,
        instructions: str,
        known: Sequence[str],
        max_cost: float,
    ) -> None:
        self._tools = tools
        self._resources = resources
        self._chat = chat
        self._instructions = instructions
        self._max_cost = max_cost
        self._known = KnownTasks(known)
        self._before = list(known)
        self._telling = [tool.name for tool in tools if _is_telling(tool.name)]
        self._batch = _BATCH
        self.tasks: dict[int, list[str]] = {level: [] for level in LEVELS}
        self.made = Generated()

    def __bool__(self) -> bool:
        return any(self.tasks.values())

    async def make(self, count: int) -> None:
        """Rounds until there are enough."""
        fruitless = 0
        while missing := self._missing(count):
            if self._max_cost and self.made.usage.cost >= self._max_cost:
                self.made.shortfall = (
                    f"they have cost {self.made.usage.cost:g} of {self._max_cost:g}"
                )
                return
            if fruitless == _FRUITLESS:
                # Of other difficulties there may be enough.
                if sum(map(len, self.tasks.values())) < count:
                    self.made.shortfall = f"{_FRUITLESS} rounds in a row gave nothing new"
                return
            fruitless = 0 if await self._round(_first(missing, self._batch)) else fruitless + 1

    def chosen(self, count: int) -> list[tuple[str, int]]:
        """The tasks by difficulty: an equal number of each, then what is left of any."""
        target = _even(count)
        chosen = {level: self.tasks[level][: target[level]] for level in LEVELS}
        spare = [(task, level) for level in LEVELS for task in self.tasks[level][target[level] :]]
        lacking = count - sum(map(len, chosen.values()))
        for task, level in spare[: max(0, lacking)]:
            chosen[level].append(task)
        return [(task, level) for level in LEVELS for task in chosen[level]]

    def _missing(self, count: int) -> Counter[int]:
        target = _even(count)
        return +Counter({level: target[level] - len(self.tasks[level]) for level in LEVELS})

    async def _round(self, wanted: Counter[int]) -> bool:
        """Whether it brought a task that was missing."""
        there = [*self._before, *(task for tasks in self.tasks.values() for task in tasks)]
        asked = prompt.messages(self._tools, self._resources, self._instructions, wanted, there)
        try:
            found = await self._answer(asked, prompt.schema(wanted.total()))
        except PromptTooLongError:
            if self._batch == 1:
                raise
            self._batch = max(1, self._batch // 2)
            return False
        useful = False
        for task, level in found:
            if any(name in task for name in self._telling):
                self.made.refused["names_a_tool"] += 1
            elif not self._known.add(task):
                self.made.refused["duplicate"] += 1
            else:
                self.tasks[level].append(task)
                useful |= wanted[level] > 0
        return useful

    async def _answer(
        self, asked: list[dict[str, str]], schema: Mapping[str, object]
    ) -> list[tuple[str, int]]:
        reply = await self._chat.ask(asked, schema, self.made.usage, "scenarios")
        try:
            return self._read(reply.text)
        except AnswerError as error:
            self.made.refused["answer"] += 1
            cut = "; it was cut off" if reply.cut_off else ""
            complaint = f"That answer cannot be used: {error}{cut}. Answer with the JSON alone."
        again = [
            *asked,
            {"role": "assistant", "content": reply.text[:_ECHO]},
            {"role": "user", "content": complaint},
        ]
        reply = await self._chat.ask(again, schema, self.made.usage, "scenarios")
        try:
            return self._read(reply.text)
        except AnswerError as error:
            log.warning("a useless answer", extra={"problem": str(error)})
            self.made.refused["answer"] += 1
            # A long answer that was cut off is no better the next time.
            self._batch = max(1, self._batch // 2)
            return []

    def _read(self, text: str) -> list[tuple[str, int]]:
        found, refused = prompt.parse(text)
        self.made.refused += refused
        return found


def _check(
    tools: Sequence[Tool], resources: Sequence[Mapping[str, str]], count: int, heldout: float
) -> None:
    wrong = []
    if not tools and not resources:
        wrong.append(Violation("tools", "is empty, and so is resources; one is needed"))
    if not 1 <= count <= MOST_SCENARIOS:
        wrong.append(Violation("num_scenarios", f"got {count}; allowed are 1 to {MOST_SCENARIOS}"))
    if not 0 <= heldout < 1:
        wrong.append(Violation("heldout", f"got {heldout}; allowed are numbers from 0 to below 1"))
    if wrong:
        raise InvalidArgumentError(violations=wrong)


def _even(count: int) -> Counter[int]:
    """As many of each difficulty; what does not divide goes to the easier ones."""
    share, rest = divmod(count, len(LEVELS))
    return Counter({level: share + (place < rest) for place, level in enumerate(LEVELS)})


def _first(missing: Counter[int], most: int) -> Counter[int]:
    """At most so many of what is missing, the difficulties in turn."""
    left, taken = Counter(missing), Counter[int]()
    while left and taken.total() < most:
        for level in sorted(left):
            if taken.total() < most:
                taken[level] += 1
                left[level] -= 1
        left = +left
    return taken


def _is_telling(name: str) -> bool:
    """Whether a tool's name is no word that people use anyway."""
    return not (name.isalpha() and (name.islower() or name.istitle()))


def _split(tasks: Sequence[tuple[str, int]], heldout: float) -> list[Scenario]:
    """Of each difficulty the same share held out, chosen by a hash of the task."""
    made = []
    for task, level in tasks:
        data = {"task": task, "difficulty": level}
        made.append((content_key({"task": task}), Scenario(made_id(content_key(data)), data)))
    # In the order of hashes within a difficulty, and the difficulties in turn.
    ranked: dict[int, list[bytes]] = {level: [] for level in LEVELS}
    for key, scenario in sorted(made, key=lambda one: one[0]):
        ranked[int(scenario.data["difficulty"])].append(key)
    turns = [
        key
        for place in range(len(made))
        for level in LEVELS
        for key in ranked[level][place : place + 1]
    ]
    count = max(1, round(heldout * len(made))) if heldout and len(made) > 1 else 0
    held = set(turns[:count])
    return [
        Scenario(scenario.id, scenario.data, HELDOUT if key in held else TRAIN)
        for key, scenario in made
    ]
