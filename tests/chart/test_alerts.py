"""Each fault fires the alert that names it, by promtool, and no other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_golden import CHART, render
from support.chart_pods import of_kind
from support.folders import service_folder
from support.programs import program

ROOT = CHART.parents[1]
RUNBOOKS = ROOT / "docs" / "runbooks"
# All as strings: `0x90` is ninety zeros, and no number.
CASES = yaml.load((Path(__file__).parent / "alert_cases.yaml").read_text(), yaml.BaseLoader)
VALUES = {
    "monitoring": {"rules": {"enabled": True}},
    "controller": {"replicas": 2},
    "rollout": {"replicas": 3},
    "pools": [{"name": "a", "model": "m"}, {"name": "b", "model": "m"}],
    "trainerPools": [
        {
            "name": "idle",
            "baseModel": "m",
            "autoscaling": {"enabled": True, "prometheusAddress": "http://prometheus:9090"},
        },
        {"name": "fixed", "baseModel": "m"},
    ],
}
OWN = 'podium_release="podium", namespace="podium"'
OTHERS = 'podium_release="other", namespace="others"'


def rules(values: dict[str, Any]) -> dict[str, Any]:
    """What Prometheus' operator is given of an installation."""
    (found,) = of_kind(render(values), "PrometheusRule")
    spec: dict[str, Any] = found["spec"]
    return spec


@cache
def alerts() -> list[dict[str, Any]]:
    return [rule for g in rules(VALUES)["groups"] for rule in g["rules"] if "alert" in rule]


def series(wanted: dict[str, str], labels: str, until: str) -> list[dict[str, str]]:
    """As promtool has them, with the release's labels; x900 is as long as it is looked at."""
    made = []
    for name, values in wanted.items():
        metric, _, own = name.partition("{")
        selector = ", ".join(filter(None, [own.removesuffix("}"), labels]))
        made.append(
            {"series": f"{metric}{{{selector}}}", "values": values.replace("x900", f"x{until}")}
        )
    return made


def of_case(case: dict[str, Any]) -> dict[str, Any]:
    """A case as promtool has it: its alert and, of the same time, every other one's silence."""
    gone = tuple(case.get("remove", ()))
    kept = {n: v for n, v in CASES["healthy"].items() if not (gone and n.startswith(gone))}
    page = f"docs/runbooks/{case['alert']}.md"
    firing = {
        "exp_labels": {"podium_release": "podium", "namespace": "podium"} | case["labels"],
        "exp_annotations": {
            "summary": case["summary"],
            "description": case["description"],
            "runbook_url": page,
        },
    }
    names = sorted({alert["alert"] for alert in alerts()})
    looked: list[dict[str, Any]] = [
        {"eval_time": case["at"], "alertname": name}
        | ({"exp_alerts": [firing]} if name == case["alert"] else {})
        for name in names
    ]
    looked += [{"eval_time": case["before"], "alertname": name} for name in names]
    return {
        "name": case["fault"],
        "interval": "1m",
        "input_series": series(kept | case.get("series", {}), OWN, case["at"].removesuffix("m")),
        "alert_rule_test": looked,
    }


def healthy(more: list[dict[str, str]], until: int) -> dict[str, Any]:
    return {
        "name": "healthy",
        "interval": "1m",
        "input_series": series(CASES["healthy"], OWN, str(until)) + more,
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert}
            for alert in sorted({a["alert"] for a in alerts()})
            for minute in range(1, until, 23)
        ],
    }


def promtool(folder: Path, tests: list[dict[str, Any]]) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules(VALUES)))
    (folder / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    # It waits for the disk with each of its databases, and looks through little for garbage often.
    memory = service_folder("podium-promtool-")
    environment = {**os.environ, "TMPDIR": str(memory), "GOGC": "400"}
    try:
        for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
            done = subprocess.run(
                [program("promtool", "prometheus"), *command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        shutil.rmtree(memory)


def test_a_fresh_installation_and_an_idle_weekend_fire_nothing(tmp_path: Path) -> None:
    always = ("up{", "process_", "podium_controller_leader", "podium_registry_volume", "kubelet_")
    fresh = {n: v for n, v in CASES["healthy"].items() if n.startswith(always) and "idle" not in n}
    # What was counted before, and stands still; of jobs that have ended nothing else is left.
    counted = {n: "100x900" for n in CASES["healthy"] if "_total" in n and "job_id" not in n}
    looked = [
        {"eval_time": f"{minute}m", "alertname": alert}
        for alert in sorted({each["alert"] for each in alerts()})
        for minute in (2, 7, 20, 40, 70)
    ]
    # A pool that fetches its model has a pod that does not answer.
    first = {n: "0x45 1x900" for n in fresh if "inference-" in n}
    given = [series(each, OWN, "70") for each in (fresh, fresh | first, fresh | counted)]
    test = {"interval": "1m", "alert_rule_test": looked}
    promtool(tmp_path, [test | {"input_series": each} for each in given])


def test_each_fault_fires_its_alert_and_no_other(tmp_path: Path) -> None:
    promtool(tmp_path, [of_case(case) for case in CASES["cases"]])


def test_nothing_fires_of_a_healthy_release_whatever_another_one_suffers(tmp_path: Path) -> None:
    suffered = [
        each
        for number, case in enumerate(CASES["cases"])
        for each in series(case.get("series", {}), f'{OTHERS}, case="{number}"', "240")
    ]
    promtool(tmp_path, [healthy(suffered, 240)])


def test_every_alert_is_tried_and_twelve_faults_are_told_apart() -> None:
    tried = {case["alert"] for case in CASES["cases"]}
    assert tried == {alert["alert"] for alert in alerts()}
    assert len(tried) >= 12


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    names = {alert["alert"] for alert in alerts()}
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == names | {"README"}
    for alert in alerts():
        assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}


def test_a_page_says_what_to_look_at_what_to_do_and_when_it_is_over() -> None:
    index = (RUNBOOKS / "README.md").read_text()
    for name in {alert["alert"] for alert in alerts()}:
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n"), name
        found = re.findall(r"^\*\*(.+?)\.\*\*", text, re.MULTILINE)
        assert found == ["Symptom", "Likely causes", "Look at", "Do", "Over when"], name
        assert f"({name}.md)" in index


def test_the_pods_that_are_missed_are_those_that_the_values_ask_for() -> None:
    def expected(values: dict[str, Any]) -> dict[str, str]:
        group = rules(VALUES | values)["groups"][-1]
        return {r["labels"]["podium_component"]: r["expr"] for r in group["rules"]}

    assert expected({}) == {
        "controller": "vector(2)",
        "registry": "vector(1)",
        "rollout": "vector(3)",
        "judge": "vector(1)",
        "console": "vector(1)",
        "inference-a": "vector(1)",
        "inference-b": "vector(1)",
        # The other one is at zero as long as nobody wants it.
        "trainers-fixed": "vector(1)",
    }
    scaled = expected(
        {
            "rollout": {"autoscaling": {"enabled": True, "minReplicas": 2}},
            "judge": {"replicas": 0},
            "gitops": {"enabled": True},
        }
    )
    assert scaled["rollout"] == "vector(2)"
    assert "judge" not in scaled
    assert scaled["gitops"] == "vector(1)"


# What YAML takes for a number is a name of a release, too.
@pytest.mark.parametrize("name", ["one", "1e3"])
def test_rules_are_about_their_own_release(name: str) -> None:
    values = {"monitoring": {"rules": {"enabled": True, "runbookBaseUrl": "https://x/"}}}
    objects = render(values, name=name, namespace="ns")
    (rule,) = of_kind(objects, "PrometheusRule")
    claims = [o["metadata"]["name"] for o in of_kind(objects, "PersistentVolumeClaim")]
    (claim,) = (each for each in claims if each.endswith("-postgresql"))
    for each in (r for group in rule["spec"]["groups"] for r in group["rules"]):
        for selector in re.findall(r"\{([^}]*)\}", each["expr"]):
            assert 'namespace="ns"' in selector
            if "persistentvolumeclaim" in selector:
                assert f'persistentvolumeclaim="{claim}"' in selector
            else:
                assert f'podium_release="{name}"' in selector
        if "alert" in each:
            assert each["annotations"]["runbook_url"].startswith("https://x/docs/runbooks/")
            # Sums have lost them, and Alertmanager takes what has the same labels for one alert.
            of = {"podium_release": name, "namespace": "ns"}
            assert of.items() <= each["labels"].items(), each["alert"]
