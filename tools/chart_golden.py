"""Renders the chart with two of ci/*-values.yaml into tests/golden/chart.

usage: python tools/chart_golden.py [--check]

It is rendered as for a cluster that has `API_VERSIONS` (`helm template --api-versions`). What the
chart makes up by itself (passwords, tokens) stands there as GENERATED.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart, _native

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "podium"
GOLDEN = ROOT / "tests" / "golden" / "chart"

CASES = ("default", "production")
"""The smallest and the fullest; of every case tests/chart says what its objects must hold."""

API_VERSIONS = ("leaderworkerset.x-k8s.io/v1",)
"""What the cluster has that the charts of ci/ are rendered for, besides Kubernetes' own."""


def manifests(
    values: Mapping[str, Any] | None = None,
    *,
    name: str = "podium",
    namespace: str = "podium",
    api_versions: Sequence[str] = API_VERSIONS,
    folder: Path = CHART,
) -> str:
    """The text that a chart makes of `values`, hooks among it, in a fixed order.

    Raises:
        helm_python.HelmError: the schema or a template refuses the values.
    """
    chart = Chart.load(folder)
    # `Chart.render`, which has no parameter for `api_versions`.
    options = {"name": name, "namespace": namespace, "api_versions": list(api_versions)}
    text = _native.call_string(
        "helm_render", chart._raw(), json.dumps(dict(values or {})), json.dumps(options)
    )
    made: dict[str, str] = json.loads(text)
    return "\n---\n".join(made[path] for path in sorted(made) if path.endswith(".yaml"))


def render(values: Mapping[str, Any] | None = None, **where: Any) -> list[dict[str, Any]]:
    """The objects of `manifests`, which takes the same."""
    objects = filter(None, yaml.load_all(manifests(values, **where), yaml.CSafeLoader))
    return sorted(objects, key=lambda o: (o["kind"], o["metadata"]["name"]))


def case_names() -> list[str]:
    """The cases of ci/, without `-values.yaml`."""
    return sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*-values.yaml"))


def case(name: str) -> list[dict[str, Any]]:
    """The objects of one case of ci/."""
    return render(yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text()))


def golden(name: str) -> str:
    """The text of a case's golden file."""
    objects = case(name)
    for item in objects:
        if item["kind"] == "Secret":
            item["data"] = dict.fromkeys(item["data"], "GENERATED")
    return yaml.safe_dump_all(objects, sort_keys=True, width=1000, explicit_start=True)


def main() -> None:
    """Writes the files, or with --check exits with 1 when one is not what the chart gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    texts = {GOLDEN / f"{name}.yaml": golden(name) for name in CASES}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in GOLDEN.glob("*.yaml") if path not in texts]
    if stale and check:
        sys.exit(f"stale: {', '.join(path.name for path in stale)}; run `make chart-golden`")
    for path in stale:
        if path in texts:
            path.write_text(texts[path])
        else:
            path.unlink()


if __name__ == "__main__":
    main()
