"""W&B, rows S28 to S31: its real client, against a server that records, and into files."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from podium_tracking.adapters.wandb_tracker import WandbTracker
from support.golden import golden
from support.tracking import JOB, MODEL, Ledger, deliver, episode, job_of
from support.wandb_server import WandbServer, wandb_server

KEY = "k" * 40
GOLDEN = golden("tutorial_tracking.json")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with wandb_server() as found:
        yield found


def online(server: WandbServer, folder: Path) -> WandbTracker:
    return WandbTracker(folder, KEY, server.url)


async def test_s28_s29_s30_s31_what_arrives_is_the_tutorials(
    server: WandbServer, tmp_path: Path
) -> None:
    ledger = Ledger(
        job_of({"wandb": {"project": "mail", "tags": ["mine"], "artifact_every_steps": 2}})
    )
    long = {"text": "ü" * 200}
    turns = [("search: a", 0.3, {"found": 15}), ('{"action": "select"}', 0.5, long)]
    ledger.kept[0] = episode(1, 0, turns * 2 + turns[:1])
    assert await deliver(ledger, online(server, tmp_path))

    run = server.run(JOB)
    assert run.display_name == "search_20250615_150640"
    assert run.tags == ["ART", "GRPO", MODEL, "mine"]
    assert run.notes == "ART training with email_search agent"
    assert run.config["model_name"]["value"] == MODEL

    rows = [row for row in run.rows() if "epoch" in row]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert set(GOLDEN["scalars"]) <= set(rows[0])
    assert {name: rows[0][name] for name in GOLDEN["scalars"]} == {
        "epoch": 1,
        "policy_loss": 0.123,
        "value_loss": 0,
        "kl_divergence": 0.045,
        "entropy": 1.5,
        "learning_rate": 1e-5,
        "average_reward": 0.1,
        "success_rate": 0.5,
        "average_episode_length": 1,
    }
    assert rows[0]["train/loss"] == 0.2
    assert "train/ratio_max" not in rows[0]
    evaluated = [row for row in run.rows() if "evaluation/version" in row]
    assert [row["evaluation/greedy/success"] for row in evaluated] == [0.5]

    episodes, actions = server.table(JOB, "episodes"), server.table(JOB, "actions")
    assert episodes["columns"] == GOLDEN["episodes"]
    assert actions["columns"] == GOLDEN["actions"]
    assert len(episodes["data"]) == 6
    assert len(actions["data"]) == 5 + 5
    assert episodes["data"][0] == [
        f"{JOB}/s1/g0/t0",
        0.85,
        5,
        True,
        0,
        GOLDEN["wandb_eff"]["5of10"],
    ]
    assert [row[2] for row in actions["data"][:2]] == ["search", "select"]
    assert [row[3] for row in actions["data"][:2]] == [0.3, 0.5]
    assert len(actions["data"][1][4]) == 100

    models = server.committed("model")
    assert list(models) == ["model_epoch_2"]
    assert models["model_epoch_2"].description == "ART model checkpoint at epoch 2"
    references = [each["ref"] for each in models["model_epoch_2"].manifest["contents"].values()]
    assert references == ["podium://search@2"]
    assert run.exits
    assert not server.unknown, server.unknown


async def test_s31_a_second_finish_and_a_second_process_change_nothing(
    server: WandbServer, tmp_path: Path
) -> None:
    ledger = Ledger(job_of({"wandb": {}}))
    assert await deliver(ledger, online(server, tmp_path))
    rows, artifacts = server.run(JOB).rows(), len(server.artifacts)
    assert await deliver(ledger, online(server, tmp_path / "elsewhere"))
    assert server.run(JOB).rows() == rows
    assert len(server.artifacts) == artifacts


async def test_s29_a_row_that_is_sent_again_is_there_once(
    server: WandbServer, tmp_path: Path
) -> None:
    ledger = Ledger(job_of({"wandb": {}}))
    tracker = online(server, tmp_path)
    tracker.open(ledger.job)
    tracker.step(2, ledger.steps_told[0])
    tracker.close()
    tracker = online(server, tmp_path)
    assert tracker.open(ledger.job).sequence == 2
    tracker.step(2, ledger.steps_told[0])
    tracker.step(3, ledger.steps_told[1])
    tracker.close()
    assert [row["epoch"] for row in server.run(JOB).rows()] == [1, 2]


def sync(server: WandbServer, folder: Path) -> None:
    """What people do with offline runs, by W&B's own command."""
    runs = sorted(str(path) for path in folder.glob("wandb/offline-run-*"))
    assert runs
    subprocess.run(
        [sys.executable, "-m", "wandb", "sync", *runs],
        cwd=folder,
        env={**os.environ, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=200,
    )


async def test_s28_an_offline_run_shows_all(server: WandbServer, tmp_path: Path) -> None:
    ledger = Ledger(job_of({"wandb": {"mode": "WANDB_MODE_OFFLINE", "artifact_every_steps": 3}}))
    assert await deliver(ledger, WandbTracker(tmp_path, ""))
    # Another process goes on where this one was, and has nothing to add.
    assert await deliver(ledger, WandbTracker(tmp_path, ""))
    assert not server.runs
    await asyncio.to_thread(sync, server, tmp_path)
    run = server.run(JOB)
    assert run.tags == ["ART", "GRPO", MODEL]
    assert run.notes == "ART training with email_search agent"
    rows = [row for row in run.rows() if "epoch" in row]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert set(GOLDEN["scalars"]) <= set(rows[0])
    assert len(server.table(JOB, "episodes")["data"]) == 6
    assert len(server.table(JOB, "actions")["data"]) == 6
    assert list(server.committed("model")) == ["model_epoch_3"]
