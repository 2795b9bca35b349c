"""MLflow: its real client, on its own store of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from podium_tracking.adapters.mlflow_tracker import MlflowTracker
from support.tracking import JOB, MODEL, Ledger, deliver, job_of


async def test_a_job_is_a_run_and_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = tmp_path.as_uri()
    ledger = Ledger(job_of({"mlflow": {"experiment": "mail"}}))
    tracker = MlflowTracker(uri)
    tracker.open(ledger.job)
    tracker.step(2, ledger.steps_told[0])
    # Another process goes on.
    assert await deliver(ledger, MlflowTracker(uri))
    assert await deliver(ledger, MlflowTracker(uri))
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("mail")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == JOB
    assert run.info.status == "FINISHED"
    assert run.data.params["model_name"] == MODEL
    history = client.get_metric_history(run.info.run_id, "average_reward")
    assert [(each.step, each.value) for each in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    evaluated = client.get_metric_history(run.info.run_id, "evaluation/greedy/success")
    assert [(each.step, each.value) for each in evaluated] == [(2, 0.5)]
