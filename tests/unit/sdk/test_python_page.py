"""What the SDK's page shows runs as it is printed there, block after block."""

from __future__ import annotations

import ast
import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk.connection.addresses import ENVIRONMENT
from support import job_records
from support.document_commands import ROOT, python
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium

PAGE = (ROOT / "docs/how-to/python.md").read_text()
JOB = "base_model: m\nenvironment: {name: email_search}\ntraining: {steps: 3}\n"


@pytest.fixture
def installation(served: FakePodium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePodium:
    for name, variable in ENVIRONMENT.items():
        monkeypatch.setenv(variable, getattr(served.addresses, name) or served.address)
    served.jobs.created_state = jobs.JOB_STATE_SUCCEEDED
    served.jobs.created_metrics = {"reward_mean": 0.75}
    served.jobs.steps = job_records.steps(3)
    served.jobs.updates = watched_job(job_records.job("w", 3, 3))
    (tmp_path / "job.yaml").write_text(JOB)
    for job in ("job-1", "my-job"):
        served.registry.publish(job, 2, {"adapter/a": b"x"}).aliases.append("best")
    return served


async def test_every_block_runs(
    installation: FakePodium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    shown = []
    for block in python(PAGE):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        made = eval(compile(block, "<page>", "exec", flags=flags), names)
        if inspect.isawaitable(made):
            await made
        shown.append(capsys.readouterr().out)
    assert shown[0] == "job-1 0.75 2\n"
    assert names["message"].training.steps == 40
    assert names["same"].training.learning_rate == 2e-4
    said = re.search(r"^This prints\n\n```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert said is not None
    assert shown[2] == said[1]
    assert shown[3].startswith("running\nstep 1\n")
    assert {"job-1", "my-job", "my-other-job"} <= installation.jobs.known.keys()
    assert len(shown) == 5
    assert os.listdir(tmp_path / "policy") == ["a"]
