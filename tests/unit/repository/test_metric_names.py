"""A metric is named in its service's metrics module and told in its README; others only use it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.metric_names import HOMES, ROOT, metrics_of, series

KINDS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
TOLD = {
    "rpc": "docs/architecture.md",
    "tracing": "docs/operate.md",
    "kubernetes": "services/controller/README.md",
}
"""Where the kit's are; a service's are in its README."""


def made(path: Path) -> Iterator[int]:
    """The lines on which a module makes a metric."""
    text = path.read_text()
    if "prometheus_client" not in text:
        return
    tree = ast.parse(text)
    imported = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
        for name in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in imported & KINDS or called in {f"prometheus_client.{k}" for k in KINDS}:
                yield node.lineno


def test_metrics_are_made_in_the_modules_for_it() -> None:
    homes = {module.replace(".", "/") + ".py" for module in HOMES.values()}
    found = {
        path.relative_to(folder).as_posix()
        for folder in [ROOT / "libs", *(ROOT / "services").iterdir()]
        for path in folder.rglob("*.py")
        if list(made(path))
    }
    assert found == homes


@pytest.mark.parametrize("home", HOMES)
def test_every_metric_is_told_with_its_labels(home: str) -> None:
    text = (ROOT / TOLD.get(home, f"services/{home}/README.md")).read_text()
    told: dict[str, list[frozenset[str]]] = {}
    prefix = f"podium_{'controller' if home == 'kubernetes' else home}"
    for name, labels in re.findall(r"`((?:podium)?_[a-z0-9_]+)(?:\{([a-z_,]*)\})?`", text):
        whole = name if name.startswith("podium_") else prefix + name
        told.setdefault(whole, []).append(frozenset(filter(None, labels.split(","))))
    metrics = metrics_of(home)
    assert metrics
    assert {metric.name for metric in metrics} - set(told) == set()
    assert {m.name: set(m.labels) for m in metrics if m.labels not in told[m.name]} == {}


def documents() -> list[Path]:
    """What people read of metrics."""
    found = [ROOT / "README.md", ROOT / "charts/podium/README.md"]
    for folder in ("docs", "services", "libs", "bench", "examples"):
        found += (ROOT / folder).rglob("*.md")
    return [path for path in found if "node_modules" not in path.parts]


def test_documents_name_metrics_that_there_are() -> None:
    known = series() | {m.name: m.labels for home in HOMES for m in metrics_of(home)}
    packages = {path.name for path in (ROOT / "services").glob("*/podium_*")}
    pattern = re.compile(r"\b(podium_[a-z0-9]+_[a-z0-9_]+[a-z0-9])(?:\{([^}`]*)\})?")
    seen = 0
    for path in documents():
        for name, labels in pattern.findall(path.read_text()):
            if name in packages or (name not in known and not name.startswith(tuple(packages))):
                continue
            assert name in known, f"{path.relative_to(ROOT)}: {name}"
            named = {re.split(r"[=!]", each)[0].strip() for each in labels.split(",")} - {""}
            assert named <= known[name], f"{path.relative_to(ROOT)}: {name}{{{labels}}}"
            seen += 1
    assert seen > 40
