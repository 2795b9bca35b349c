"""Any MCP server: its tools are the agent's, its sessions are the episodes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from podium.core.answers import contains_answer, exact_match
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.environments.adapters.mcp_examples import Example, call_faults, size_faults, turns
from podium.environments.adapters.mcp_session import McpServer, McpSession
from podium.environments.base import Environment, checked_options
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    Score,
    StepResult,
    Tool,
    ToolCall,
    system,
    tool_result,
    user,
)

COMMANDS_VARIABLE = "PODIUM_MCP_COMMANDS"
_EXAMPLES = "environment.config.examples"
PROMPT = (
    "Do what the user asks, with the tools that you have. When it is done, or cannot be done, "
    "say so."
)


class Config(BaseModel):
    """Options of the environment, beside `scenarios`."""

    model_config = ConfigDict(extra="forbid")

    server: McpServer
    """The server."""
    tools: list[str] = []
    """The only tools to offer; all of the server's without it."""
    prompt: str = PROMPT
    """The system message, before the server's own instructions."""
    task: str = "task"
    """Field of a scenario's data that is the user's message."""
    examples: list[Example] = []
    """Tasks that were done, shown before the user's message as earlier turns; a scenario's own
    `examples` take their place."""
    finish: str = "finish"
    """Name of a tool that ends the episode with an answer; empty for none. A message that calls
    nothing ends it too."""
    match: Literal["exact", "contains"] = "exact"
    """How a final answer matches a scenario's `answer`: it has the same words, or contains them."""
    open_seconds: float = Field(default=60.0, gt=0, le=600)
    """What the server may take to start and say what it offers."""
    call_seconds: float = Field(default=30.0, gt=0, le=3600)
    """What a call may take; all calls of a turn have `episode.step_timeout_seconds` together."""
    result_characters: int = Field(default=8000, ge=1)
    """Longest result that the agent reads; the rest is left out."""


class _Examples(BaseModel):
    """A scenario's own."""

    examples: list[Example]


class Mcp(Environment):
    """One session with an MCP server.

    Scenarios come from a file (the option `scenarios`): `task` is what the
    user asks for. A scenario with `answer`, a text or a list of them, is a
    success when the agent's last words match it; one with `check`, `{tool,
    arguments, contains}`, when that call, made at the end, answers with that
    text. With neither there is no reward, and a judge compares the attempts.
    `examples` are its own worked examples, in place of the option's.
    Metrics: `tool_calls`, `tool_errors`, `finished`, `success`.
    """

    name: ClassVar[str] = "mcp"
    description: ClassVar[str] = "Any MCP server: its tools, with tasks from a file."
    Config: ClassVar[type[BaseModel]] = Config

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Checks the options; starts nothing yet.

        Raises:
            InvalidArgumentError: naming each wrong option.
            FailedPreconditionError: the package mcp is not installed, or the server's program
                may not be started here.
        """
        super().__init__(config)
        if self.config.server.command:
            _allowed(self.config.server.command[0])
        _refused(size_faults(self.config.examples, _EXAMPLES))
        self._session = McpSession(self.config.server)
        self._calls = self._errors = 0
        self._finished = False
        self._answer = ""
        self._scenario = Scenario("")

    def scenarios(self, split: str) -> Sequence[Scenario]:
        raise _wrong(
            "environment.config.scenarios",
            "is missing; `podium scenarios generate` makes a file of tasks from the server's tools",
        )

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._scenario = scenario
        task = _text(scenario.data.get(self.config.task), self.config.task)
        self._accepted = self._answers()
        self._check = self._checked()
        examples, field = self._shown()
        try:
            await self._session.open(self.config.open_seconds)
        except InvalidArgumentError as error:
            raise _wrong(
                "environment.config.server.command", error.violations[0].description
            ) from error
        self._tools = self._offered()
        # Of `finish` an example has its answer.
        _refused(call_faults(examples, self._tools[: -1 if self.config.finish else None], field))
        prompt = "\n\n".join(filter(None, (self.config.prompt, self._session.instructions)))
        before = [system(prompt)] if prompt else []
        return Observation([*before, *turns(examples), user(task)], self._tools)

    async def step(self, action: Message) -> StepResult:
        if not action.tool_calls:
            if action.malformed_calls:
                return self._result([user("Nothing was called.")])
            self._finished, self._answer = True, action.content
            return self._result([])
        results = []
        for call in action.tool_calls:
            results.append(tool_result(call, await self._made(call)))
            if self._finished:
                return self._result([])
        return self._result(results)

    async def score(self) -> Score:
        info: dict[str, Any] = {"result": self._answer}
        passed = []
        if self._accepted:
            info["expected"] = self._accepted
            matches = exact_match if self.config.match == "exact" else contains_answer
            passed.append(self._finished and matches(self._answer, self._accepted))
        if self._check:
            tool, arguments, contains = self._check
            answer = await self._session.call(tool, arguments, self.config.call_seconds)
            info["check"] = answer.text[: self.config.result_characters]
            passed.append(not answer.failed and contains in answer.text)
        if not passed:
            return Score(metrics=self._metrics(), info=info)
        success = float(all(passed))
        return Score(success, {**self._metrics(), "success": success}, info)

    async def close(self) -> None:
        await self._session.close()

    async def _made(self, call: ToolCall) -> str:
        """The result of a call, for the agent."""
        self._calls += 1
        text, failed = await self._called(call)
        self._errors += failed
        most = self.config.result_characters
        if len(text) > most:
            text = f"{text[:most]}… ({len(text) - most} characters left out)"
        return f"error: {text}" if failed else text

    async def _called(self, call: ToolCall) -> tuple[str, bool]:
        names = [tool.name for tool in self._tools]
        if call.name not in names:
            return f"no tool {call.name!r}; there are {', '.join(names)}", True
        try:
            arguments = json.loads(call.arguments_json or "{}")
        except (ValueError, RecursionError):
            return "the arguments are no JSON", True
        if not isinstance(arguments, dict):
            return "the arguments are no JSON object", True
        if call.name != self.config.finish:
            answer = await self._session.call(call.name, arguments, self.config.call_seconds)
            return answer.text, answer.failed
        if not isinstance(arguments.get("answer"), str):
            return 'give {"answer": "your answer"}', True
        self._finished, self._answer = True, arguments["answer"]
        return "", False

    def _offered(self) -> list[Tool]:
        there = {tool.name: tool for tool in self._session.tools}
        missing = [name for name in self.config.tools if name not in there]
        if missing:
            raise _wrong(
                "environment.config.tools",
                f"got {', '.join(missing)}; the server has {', '.join(there) or 'none'}",
            )
        offered = [there[name] for name in self.config.tools or there]
        if not self.config.finish:
            return offered
        if self.config.finish in (tool.name for tool in offered):
            raise _wrong(
                "environment.config.finish",
                f"got {self.config.finish!r}, which the server has; choose another name",
            )
        return [*offered, _finish_tool(self.config.finish)]

    def _shown(self) -> tuple[list[Example], str]:
        """The examples, and where they stand."""
        given = self._scenario.data.get("examples")
        if given is None:
            return self.config.examples, _EXAMPLES
        examples = checked_options(_Examples, {"examples": given}, "scenario.data").examples
        _refused(size_faults(examples, "scenario.data.examples"))
        return examples, "scenario.data.examples"

    def _answers(self) -> list[str]:
        given = self._scenario.data.get("answer")
        if given is None:
            return []
        several = given if isinstance(given, list) else [given]
        return [_text(answer, "answer") for answer in several]

    def _checked(self) -> tuple[str, dict[str, Any], str] | None:
        given = self._scenario.data.get("check")
        if given is None:
            return None
        arguments = given.get("arguments", {}) if isinstance(given, Mapping) else None
        if not isinstance(arguments, Mapping):
            allowed = "allowed are objects of tool, arguments and contains"
            raise _wrong("scenario.data.check", f"got {given!r}; {allowed}")
        tool, contains = (_text(given.get(key), f"check.{key}") for key in ("tool", "contains"))
        return tool, dict(arguments), contains

    def _result(self, messages: list[Message]) -> StepResult:
        return StepResult(
            Observation(messages, self._tools), terminated=self._finished, metrics=self._metrics()
        )

    def _metrics(self) -> dict[str, float]:
        return {
            "tool_calls": float(self._calls),
            "tool_errors": float(self._errors),
            "finished": float(self._finished),
        }


def _finish_tool(name: str) -> Tool:
    answer = {"type": "string", "description": "What the user is told."}
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return Tool(name, "Ends the task with an answer to the user.", schema)


def _allowed(program: str) -> None:
    """Whoever writes a job chooses the command, and must not run what they like where it runs."""
    allowed = [name.strip() for name in os.environ.get(COMMANDS_VARIABLE, "").split(",")]
    if "*" not in allowed and program not in filter(None, allowed):
        raise FailedPreconditionError(
            f"environment.config.server.command: {program!r} may not be started here; "
            f"{COMMANDS_VARIABLE} lists what may, by commas, and * is all. A server behind a "
            "url needs no leave",
            reason="COMMAND_NOT_ALLOWED",
            metadata={"program": program},
        )


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(f"scenario.data.{field}", f"got {value!r}; allowed are texts")
    return value


def _refused(faults: Iterable[Violation]) -> None:
    if violations := list(faults):
        raise InvalidArgumentError(violations=violations)


def _wrong(field: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation(field, why)])
