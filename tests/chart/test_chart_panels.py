"""What panels and annotations show, by promtool, of series as they are scraped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import dashboards
import pytest
import yaml
from support.programs import program

RANK = "podium-trainer-j-job-0"
SHORTENED = "podium-trainer-a-very-long-name-of-a-1f2e3d4c"
GPU_PODS = {
    # Two machines of a trainer, of which the first tells of the job; a trainer pool's one.
    f"{RANK}-0-abc12": {"podium_release": "podium", "podium_component": "trainer", "job_id": "j"},
    f"{RANK}-1-def34": {"podium_release": "podium", "podium_component": "trainer"},
    "podium-trainers-p-0": {
        "podium_release": "podium",
        "podium_component": "trainers-p",
        "job_id": "pooled",
    },
    # A name that was too long for the pods to have it.
    f"{SHORTENED}-0-abc12": {
        "podium_release": "podium",
        "podium_component": "trainer",
        "job_id": "a-very-long-name-of-an-environment-k3v9q2",
    },
    f"{SHORTENED}-1-abc12": {"podium_release": "podium", "podium_component": "trainer"},
    "podium-trainer-j-2-0-abc12": {
        "podium_release": "podium",
        "podium_component": "trainer",
        "job_id": "j-2",
    },
    "podium-inference-a-0": {"podium_release": "podium", "podium_component": "inference-a"},
    "podium-inference-a-b-0": {"podium_release": "podium", "podium_component": "inference-a-b"},
    # Of releases whose names begin alike, in the same namespace.
    "podium2-trainer-j-0-abc12": {
        "podium_release": "podium2",
        "podium_component": "trainer",
        "job_id": "j",
    },
    "podium-2-inference-a-0": {
        "podium_release": "podium-2",
        "podium_component": "inference-a",
    },
    # Nobody's.
    "podium-notebook-0": {},
}


# Whether Prometheus takes the DCGM exporter's labels (`honorLabels`): by default it does not.
@pytest.mark.parametrize("honoured", [True, False])
@pytest.mark.parametrize(
    ("uid", "chosen", "shown"),
    [
        ("job", {"job": "j"}, {f"{RANK}-0-abc12", f"{RANK}-1-def34"}),
        ("job", {"job": "pooled"}, {"podium-trainers-p-0"}),
        (
            "job",
            {"job": "a-very-long-name-of-an-environment-k3v9q2"},
            {f"{SHORTENED}-0-abc12", f"{SHORTENED}-1-abc12"},
        ),
        ("job", {"job": "j", "release": "podium2"}, {"podium2-trainer-j-0-abc12"}),
        ("pool", {"pool": "inference-a"}, {"podium-inference-a-0"}),
        (
            "overview",
            {},
            {n for n, labels in GPU_PODS.items() if labels.get("podium_release") == "podium"},
        ),
        ("overview", {"release": "podium-2"}, {"podium-2-inference-a-0"}),
    ],
)
def test_the_gpus_that_are_shown_are_of_the_job_the_pool_or_the_release(
    uid: str, chosen: dict[str, str], shown: set[str], honoured: bool, tmp_path: Path
) -> None:
    def told(where: dict[str, str], gpu: str) -> dict[str, str]:
        if not honoured:
            own = {"namespace": "gpu-operator", "pod": "dcgm-exporter-1"}
            where = own | {f"exported_{label}": value for label, value in where.items()}
        return made("DCGM_FI_DEV_GPU_UTIL", where | {"gpu": gpu})

    expressions = [e for e in dashboards.expressions(uid) if "DCGM_" in e]
    assert len(expressions) == 4
    given = []
    for pod, labels in GPU_PODS.items():
        where = {"namespace": "podium", "pod": pod}
        scraped = {key: value for key, value in labels.items() if key != "job_id"}
        given += [told(where, gpu) for gpu in "01"]
        # What has the name of another namespace's pod is another one.
        given.append(told(where | {"namespace": "other"}, "0"))
        if labels:
            given.append(made("up", where | scraped))
        if "job_id" in labels:
            given.append(made("podium_trainer_step", where | labels))
    expression = expressions[0]
    assert "DCGM_FI_DEV_GPU_UTIL" in expression
    for name, value in ({"namespace": "podium", "release": "podium"} | chosen).items():
        expression = expression.replace(f'"${name}"', f'"{value}"')
    expression = f"count by (namespace, pod) ({expression})"
    expected = [
        {"labels": labels_text({"namespace": "podium", "pod": pod}), "value": 2} for pod in shown
    ]
    run(tmp_path, given, [{"expr": expression, "eval_time": "1m", "exp_samples": expected}])


def run(folder: Path, given: list[dict[str, str]], asked: list[dict[str, Any]]) -> None:
    """Has promtool evaluate expressions over series with a sample a minute."""
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
    (folder / "tests.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    done = subprocess.run(
        [program("promtool", "prometheus"), "test", "rules", str(folder / "tests.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def labels_text(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def made(metric: str, labels: dict[str, str]) -> dict[str, str]:
    return {"series": metric + labels_text(labels), "values": "1x5"}


def test_new_weights_are_marked_whoever_scrapes_once_a_minute(tmp_path: Path) -> None:
    (mark,) = (
        each
        for each in dashboards.dashboard("job")["annotations"]["list"]
        if each["name"] == "New weights"
    )
    where = {"namespace": "podium", "podium_release": "podium", "job_id": "j"}
    expression = mark["expr"]
    for name, value in (("namespace", "podium"), ("release", "podium"), ("job", "j")):
        expression = expression.replace(f'"${name}"', f'"{value}"')
    step = {"series": "podium_controller_step" + labels_text(where), "values": "1 1 1 2 2 2 2"}
    marked = {"labels": "{}", "value": 1}
    asked = [("3m30s", [marked]), ("5m30s", [])]
    run(
        tmp_path,
        [step],
        [
            {"expr": f"count({expression})", "eval_time": at, "exp_samples": found}
            for at, found in asked
        ],
    )
