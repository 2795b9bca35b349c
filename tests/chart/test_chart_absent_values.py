"""Values that are not there: an older chart's, which `--reuse-values` keeps, and null ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_golden import CHART, manifests, render
from helm_python import HelmError

Values = dict[str, Any]

DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text())
# What is off by default and has templates of its own.
EVERYTHING = {
    "gitops": {"enabled": True},
    "tracking": {"enabled": True},
    "console": {"ingress": {"enabled": True, "host": "podium.example.com"}},
    "monitoring": {part: {"enabled": True} for part in ("podMonitor", "rules", "dashboards")},
    "trainerPools": [{"name": "t", "baseModel": "smollm2-135m-instruct"}],
}


def emptied(values: Values) -> Values:
    """Null for each that is empty by default, as `settings:` without anything says in YAML."""
    return {
        key: emptied(value) if isinstance(value, dict) and value else None
        for key, value in values.items()
        if isinstance(value, dict) or value in ("", [])
    }


def over(values: Values, more: Values) -> Values:
    merged = dict(values)
    for key, value in more.items():
        merged[key] = over(merged.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


def without_secrets(values: Values) -> list[Values]:
    """The objects but for those whose tokens are new each time."""
    return [each for each in render(values) if each["kind"] != "Secret"]


def at(path: str, value: Any) -> Values:
    """Values that hold one at a path."""
    *above, name = path.split(".")
    values: Values = {name: value}
    for each in reversed(above):
        values = {each: values}
    return values


def test_an_empty_value_may_be_null() -> None:
    values = over(emptied(DEFAULTS), EVERYTHING)
    assert values["controller"]["settings"] is values["image"]["tag"] is None
    assert without_secrets(values) == without_secrets(EVERYTHING)


@pytest.mark.parametrize(
    "path",
    [
        "gitops",
        "tracking",
        "console.ingress",
        "monitoring",
        *(f"monitoring.{part}" for part in ("podMonitor", "rules", "dashboards")),
        *(f"{of}.autoscaling" for of in ("rollout", "judge", "poolDefaults")),
        "trainerPoolDefaults.autoscaling",
        "modelCache.persistence",
    ],
)
def test_what_is_off_by_default_may_be_null(path: str) -> None:
    """As people write it to unset a default."""
    assert without_secrets(at(path, None)) == without_secrets({})


def test_of_monitoring_a_part_may_be_null_beside_others() -> None:
    for part in EVERYTHING["monitoring"]:
        off = over(EVERYTHING, at(f"monitoring.{part}", {"enabled": False}))
        assert without_secrets(over(EVERYTHING, at(f"monitoring.{part}", None))) == (
            without_secrets(off)
        )


def test_a_database_of_ones_own_needs_no_values_of_the_charts() -> None:
    values = over(EVERYTHING, {"database": {"internal": None, "existingSecret": "mine"}})
    with_theirs = over(EVERYTHING, {"database": {"existingSecret": "mine"}})
    assert without_secrets(values) == without_secrets(with_theirs)
    with pytest.raises(HelmError, match=r"database\.internal is missing, by which the chart runs"):
        render({"database": {"internal": None}})


@pytest.mark.parametrize(
    "path",
    # Some of them would say the opposite of the default.
    ["auth.enabled", "networkPolicy.enabled", "image.repository", "drainSeconds", "judge", "pools"],
)
def test_another_value_that_is_null_is_named(path: str) -> None:
    *above, name = path.split(".")
    with pytest.raises(HelmError, match=f"at '{'/'.join(['', *above])}': missing property '{name}"):
        render(at(path, None))


def test_values_of_an_older_chart_are_refused_by_what_they_lack(tmp_path: Path) -> None:
    # With --reuse-values Helm takes the defaults of the chart that was installed.
    folder = tmp_path / "podium"
    shutil.copytree(CHART, folder)
    older = over(DEFAULTS, {})
    del older["trainerPoolDefaults"]
    older["controller"] = {k: v for k, v in older["controller"].items() if k != "evaluations"}
    (folder / "values.yaml").write_text(yaml.safe_dump(older))
    with pytest.raises(HelmError) as refused:
        manifests(folder=folder)
    assert "at '': missing property 'trainerPoolDefaults'" in str(refused.value)
    assert "at '/controller': missing property 'evaluations'" in str(refused.value)
