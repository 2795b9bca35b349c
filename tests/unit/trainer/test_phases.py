"""Where a step's time goes, on a device that computes behind the program."""

from __future__ import annotations

import pytest
import torch
from podium_trainer.learner import phases as module
from podium_trainer.learner.phases import Phases, done_by


def test_a_phase_is_what_the_device_did_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, queued = 0.0, 0.0

    def done() -> None:
        """The device works off what it was given, and time goes by meanwhile."""
        nonlocal clock, queued
        clock, queued = clock + queued, 0.0

    monkeypatch.setattr(module.time, "perf_counter", lambda: clock)
    phases = Phases(done)
    # Given before, by what no phase measures.
    queued = 100
    with phases.measure("forward"):
        queued += 3
    with phases.measure("backward"):
        queued += 5
    with phases.measure("forward"):
        queued += 4
    assert phases.seconds == {"forward": 7, "backward": 5}


def test_a_phase_that_fails_waits_for_nothing_and_is_counted() -> None:
    asked: list[int] = []
    phases = Phases(lambda: asked.append(len(asked)))
    with pytest.raises(ValueError, match="lost"), phases.measure("forward"):
        raise ValueError("lost")
    assert asked == [0]
    assert phases.seconds.keys() == {"forward"}


def test_a_gpu_is_waited_for_and_a_cpu_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    done_by(torch.device("cpu"))()
    assert waited == []
    done_by(torch.device("cuda", 1))()
    assert waited == [torch.device("cuda", 1)]
