"""The bar of `gather_trajectory_groups`, on a real terminal, and its silence without one."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from podium.training import Trajectory, TrajectoryGroup, gather_trajectory_groups
from podium.training import gather_trajectories as gather
from podium.training.bars import Bar, shown
from podium.training.progress import FailureBudget
from support.notebook import notebook


@contextmanager
def terminal() -> Iterator[list[str]]:
    """stderr is a terminal in the block; afterwards the list has what was drawn on it, as text.

    No fixture, as pytest's capture puts stderr back before each test begins.
    """
    drawn: list[str] = []
    screen, ours = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(ours, "w") as stderr:
        patch.setattr(sys, "stderr", stderr)
        for name, value in (("TERM", "xterm"), ("COLUMNS", "100"), ("LINES", "20")):
            patch.setenv(name, value)
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        assert sys.stderr.isatty()
        yield drawn
    content = b""
    with contextlib.suppress(OSError):  # Linux's end of a terminal that nobody holds any more.
        while part := os.read(screen, 65536):
            content += part
    os.close(screen)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", content.decode())
    drawn += [line for line in re.split(r"[\r\n]+", plain) if line]


async def rollout(reward: float) -> Trajectory:
    if reward < 0:
        raise KeyError("no such tile")
    return Trajectory(reward=reward)


async def test_a_terminal_sees_how_many_have_ended_their_reward_and_what_failed() -> None:
    groups = [
        TrajectoryGroup(rollout(reward) for reward in (1.0, 3.0)),
        TrajectoryGroup(rollout(reward) for reward in (-1.0, 5.0)),
    ]
    with terminal() as drawn:
        await gather_trajectory_groups(groups, pbar_desc="step 7", max_exceptions=1)
    assert "step 7" in drawn[-1]
    assert "4/4" in drawn[-1]
    assert "reward 3.000, 1 failed" in drawn[-1]


async def test_without_a_description_a_terminal_sees_nothing() -> None:
    with terminal() as drawn:
        await gather([rollout(1.0)], pbar_desc=None)
    assert drawn == []


async def test_a_pipe_sees_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    groups = await gather_trajectory_groups([TrajectoryGroup([rollout(1.0)])])
    assert len(groups) == 1
    assert capfd.readouterr() == ("", "")
    with shown("gather") as bar:
        assert bar is None


async def test_a_terminal_without_rich_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with terminal() as drawn:
        assert len(await gather([rollout(1.0)])) == 1
    assert drawn == []


class Lines(Bar):
    """Writes down what would be drawn."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, int, str]] = []

    def show(self, done: int, total: int, text: str) -> None:
        self.lines.append((done, total, text))


def test_the_bar_follows_every_rollout_and_grows_with_those_that_were_not_known() -> None:
    budget = FailureBudget(max_exceptions=1, total=2)
    bar = budget.bar = Lines()
    budget.begin(2)
    budget.succeeded(1.0)
    budget.begin(1)
    budget.failed(KeyError("x"))
    budget.succeeded(2.0)
    with pytest.raises(ValueError, match="once more"):
        budget.failed(ValueError("once more"))
    assert bar.lines == [
        (0, 2, "reward 0.000"),
        (1, 2, "reward 1.000"),
        (1, 3, "reward 1.000"),
        (2, 3, "reward 1.000, 1 failed"),
        (3, 3, "reward 1.500, 1 failed"),
        (4, 3, "reward 1.500, 2 failed"),
    ]


async def test_a_notebook_sees_one_line_that_is_drawn_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = notebook(monkeypatch)
    await gather([rollout(1.0), rollout(3.0)], pbar_desc="step 7")
    assert cell.displays == [f"step 7 {'━' * 30} 2/2  reward 2.000"]
    assert cell.drawn > 2
    with shown("x") as bar:
        assert bar is not None
        bar.show(1, 3, "")
        bar.say("a warning")
        assert cell.displays[-1] == f"x {'━' * 10}{'╌' * 20} 1/3"
        bar.show(7, 0, "")
        assert cell.displays[-1] == f"x {'╌' * 30} 7/0"
    assert capsys.readouterr().out == "a warning\n"


async def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = notebook(monkeypatch, kernel=False)
    with terminal() as drawn:
        await gather([rollout(1.0)], pbar_desc="step 7")
    assert "step 7" in drawn[-1]
    assert cell.displays == []
