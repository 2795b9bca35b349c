"""S43: the benchmark of replicas, run small: two rollout replicas share one engine's work."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GROUPS, TURNS, LATENCY = 8, 3, 0.05
EPISODES = GROUPS * 8


@pytest.mark.long
@pytest.mark.timeout(300)
def test_s43_the_benchmark_runs_with_two_replicas_that_both_work(tmp_path: Path) -> None:
    output = tmp_path / "rollout.json"
    command = [sys.executable, "-m", "bench.rollout", "--replicas", "1,2"]
    command += ["--groups", str(GROUPS), "--turns", str(TURNS), "--latency", str(LATENCY)]
    done = subprocess.run(
        [*command, "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    # 1 means that one replica and two gave other trajectories.
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = json.loads(output.read_text())["replicas"]
    assert (one["replicas"], two["replicas"]) == (1, 2)
    assert one["trajectories"] == two["trajectories"]
    assert one["episodes_by_replica"] == [EPISODES]
    assert sum(two["episodes_by_replica"]) == EPISODES
    assert all(two["episodes_by_replica"])
    for row in (one, two):
        # Four groups at once a replica, each as long as its turns' latency: no run is shorter.
        assert row["ideal_s"] == pytest.approx(
            math.ceil(GROUPS / (4 * row["replicas"])) * TURNS * LATENCY
        )
        assert row["seconds"] >= row["ideal_s"]
        assert row["share_of_ideal"] == pytest.approx(row["ideal_s"] / row["seconds"])
    ratio = two["episodes_per_second"] / one["episodes_per_second"]
    assert f"{ratio:.2f} times that of 1" in done.stdout
