"""An OpenEnv server, run by a test in an interpreter that has the package openenv.

It knows nothing of Podium: `python openenv_server.py PORT SESSIONS`.
"""

import sys
import time

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    digit: int
    note: str = ""


class Hint(Observation):
    text: str
    tries: int = 0


class GuessEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, answer=None, **kwargs):
        self._answer = seed % 10 if answer is None else answer
        self._state = State(episode_id=episode_id or "none", step_count=0)
        return Hint(text="Guess a digit.")

    def step(self, action, timeout_s=None, **kwargs):
        if action.note == "raise":
            raise RuntimeError("the wheel came off")
        if action.note == "slow":
            time.sleep(1.5)
        self._state.step_count += 1
        tries = self._state.step_count
        if action.digit == self._answer:
            return Hint(text="right", tries=tries, done=True, reward=1.0)
        if tries == 3:
            return Hint(text="no more", tries=tries, done=True, metadata={"truncated": True})
        text = "higher" if action.digit < self._answer else "lower"
        return Hint(text=text, tries=tries, reward=-0.1)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(GuessEnvironment, Guess, Hint, max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
