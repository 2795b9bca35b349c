"""Scenarios of a data set on the Hugging Face hub: the real client, a local hub."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from support.fake_hub import COMMIT, fake_hub

# The client reads the hub's address when it is imported.
_LOAD = """
import json, sys
from podium.core.errors import PodiumError
from podium.environments.scenarios import ScenarioSource, load_scenarios

columns = {"data": {"task": "question", "answer": "gold"}}
found = {}
for name in sys.argv[1:]:
    source = ScenarioSource.model_validate({"dataset": name, "columns": columns})
    try:
        found[name] = {s: [x.data for x in load_scenarios(source, s)] for s in ("train", "heldout")}
    except PodiumError as error:
        found[name] = [error.reason, error.message]
print(json.dumps(found))
"""


def load(endpoint: str, home: Path, *names: str) -> dict[str, Any]:
    """What `load_scenarios` gives for each data set, or its error, in a process of its own."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, *names],
        env=inherited | settings,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(rows: list[dict[str, Any]]) -> bytes:
    written = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), written)
    return written.getvalue()


@pytest.mark.timeout(400)
def test_a_data_set_of_the_hub_by_its_name(tmp_path: Path) -> None:
    files = {
        "README.md": b"---\nlicense: mit\n---\n# Tasks\n",
        "data/train-00000-of-00001.parquet": table(
            [{"question": f"q{n}", "gold": n} for n in range(5)]
        ),
        "data/test-00000-of-00001.parquet": table([{"question": "t", "gold": 9}]),
    }
    with fake_hub("org/tasks", files) as hub:
        found = load(hub.endpoint, tmp_path, "org/tasks", "org/none")
    assert found["org/tasks"] == {
        "train": [{"task": f"q{n}", "answer": n} for n in range(5)],
        "heldout": [{"task": "t", "answer": 9}],
    }
    assert any(f"/resolve/{COMMIT}/data/train-" in request for request in hub.requests)
    reason, message = found["org/none"]
    assert reason == "INVALID_ARGUMENT"
    assert message.startswith("dataset: got 'org/none', no data set that can be read: ")
