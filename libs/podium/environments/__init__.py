"""Write an environment: a class with `reset` and `step`.

    class Guess(Environment):
        name = "guess"
        splits = ("train", "heldout")

        def scenarios(self, split): return [Scenario("one", {"answer": 7})]

        async def reset(self, scenario, seed):
            self.answer = scenario.data["answer"]
            return Observation([user("Guess a digit.")])

        async def step(self, action):
            right = action.content.strip() == str(self.answer)
            return StepResult(Observation(), reward=float(right), terminated=True)

`podium env serve mymodule:Guess` serves it to a rollout
service in another process.
"""

from podium.environments.adapters.tuples import from_tuples
from podium.environments.agent import Agent
from podium.environments.agents import Played, Scripted, play
from podium.environments.base import Environment
from podium.environments.catalog import builtin_names, load
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    Score,
    StepResult,
    Tool,
    ToolCall,
    anew,
    assistant,
    system,
    to,
    tool_result,
    user,
)

__all__ = [
    "Agent",
    "Environment",
    "Message",
    "Observation",
    "Played",
    "Scenario",
    "Score",
    "Scripted",
    "StepResult",
    "Tool",
    "ToolCall",
    "anew",
    "assistant",
    "builtin_names",
    "from_tuples",
    "load",
    "play",
    "system",
    "to",
    "tool_result",
    "user",
]
