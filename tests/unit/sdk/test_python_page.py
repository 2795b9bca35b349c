"""What the page on Python and the notebook show runs as it is printed there, block after block."""

from __future__ import annotations

import ast
import inspect
import json
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
from support.notebook import notebook

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


async def executed(block: str, names: dict[str, Any]) -> None:
    """Runs a block, which may await, as a notebook does."""
    made = eval(compile(block, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(made):
        await made


async def test_every_block_runs(
    installation: FakePodium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    shown = []
    for block in python(PAGE):
        await executed(block, names)
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


async def test_the_notebook_runs(
    installation: FakePodium,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = notebook(monkeypatch)
    whole = json.loads((ROOT / "examples/train.ipynb").read_text())
    code = ["".join(each["source"]) for each in whole["cells"] if each["cell_type"] == "code"]
    assert not any(each.get("outputs") for each in whole["cells"]), "commit it without outputs"
    names: dict[str, Any] = {}
    for block in code:
        await executed(block, names)
    assert cell.displays[0].startswith("training job-1 ")
    assert names["run"].best_version == 2
    assert "  3 0." in capsys.readouterr().out
    assert os.listdir(tmp_path / "job-1-policy") == ["a"]
