"""MLflow: its real client, on its own store of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
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


async def test_what_a_job_is_is_told_though_the_server_was_away_when_its_run_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = tmp_path.as_uri()
    ledger = Ledger(job_of({"mlflow": {"experiment": "mail"}}))

    def away(*arguments: object, **named: object) -> None:
        raise MlflowException("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", away)
        with pytest.raises(MlflowException, match="away"):
            MlflowTracker(uri).open(ledger.job)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("mail")
    assert experiment is not None
    [made] = client.search_runs([experiment.experiment_id])
    client.log_param(made.info.run_id, "batch_size", "1")
    assert await deliver(ledger, MlflowTracker(uri))
    [run] = client.search_runs([experiment.experiment_id])
    assert run.data.params["model_name"] == MODEL
    # What somebody said meanwhile would be refused with another value, now and for ever.
    assert run.data.params["batch_size"] == "1"
    assert set(run.data.params) == {
        "model_name",
        "agent_type",
        "learning_rate",
        "batch_size",
        "max_steps_per_episode",
    }
    client.set_tag(run.info.run_id, "mlflow.note.content", "mine")
    MlflowTracker(uri).open(ledger.job)
    assert client.get_run(run.info.run_id).data.tags["mlflow.note.content"] == "mine"
