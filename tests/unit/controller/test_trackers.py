"""Trackers that a job names: whether anybody tells them, and whose secrets it may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2
from podium_controller.api.admission import Admission
from podium_controller.api.trackers import Trackers
from podium_controller.pools.projects import ProjectLimits, Projects
from support.fakes.bench import Bench

ANY = Projects()


def load(tmp_path: Path, text: str, projects: Projects = ANY) -> Trackers:
    path = tmp_path / "secrets.yaml"
    path.write_text(text)
    return Trackers.load(True, path, projects)


def job(project: str = "", **tracking: Any) -> spec_pb2.JobSpec:
    return spec_pb2.JobSpec(project=project, tracking=spec_pb2.TrackingSpec(**tracking))


def test_a_secret_is_for_the_projects_that_it_names(tmp_path: Path) -> None:
    trackers = load(tmp_path, "mail: {projects: [mail, ops]}\nnobodys: {projects: []}\nshared: {}")
    for spec in (
        job("mail", wandb={"secret": "mail"}, mlflow={"secret": "shared"}),
        job("chess", wandb={"secret": "shared"}, langfuse={}),
        job("chess", openpipe={}),
        job("chess"),
    ):
        assert trackers.violations(spec) == []
    found = trackers.violations(
        job("chess", wandb={"secret": "mail"}, mlflow={"secret": "gone"}, langfuse={})
    )
    # That another project has a secret of that name is not told.
    assert [(each.field, each.description) for each in found] == [
        (
            f"job.spec.tracking.{tracker}.secret",
            f"got {name!r}; allowed for the project 'chess' are shared",
        )
        for tracker, name in (("wandb", "mail"), ("mlflow", "gone"))
    ]
    (violation,) = trackers.violations(job(mlflow={"secret": "nobodys"}))
    assert "the project 'default' are shared" in violation.description


def test_without_a_file_any_secret_may_be_named_and_an_empty_one_has_none(tmp_path: Path) -> None:
    spec = job("a", wandb={"secret": "any"})
    assert Trackers.load(None, None, ANY).violations(spec) == []
    (violation,) = load(tmp_path, "").violations(spec)
    assert "are none" in violation.description


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a: {project: [b]}", "tracking_secrets_file.a.project"),
        ("a: {projects: b}", "tracking_secrets_file.a.projects"),
        ("a: {projects: [1]}", "tracking_secrets_file.a.projects.0"),
        ("a: {projects: [mail, mial]}", "tracking_secrets_file.a.projects.1"),
        ("a:", "tracking_secrets_file.a"),
        ("- a", "tracking_secrets_file"),
        ("a: [", "tracking_secrets_file"),
    ],
)
def test_what_the_file_says_wrong_is_named(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        load(tmp_path, text, Projects({"mail": ProjectLimits()}))
    assert [violation.field for violation in raised.value.violations] == [field]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        Trackers.load(True, tmp_path / "nowhere.yaml", ANY)


@pytest.mark.parametrize(
    ("running", "named", "warned"),
    [(False, True, True), (False, False, False), (True, True, False), (None, True, False)],
)
def test_who_names_trackers_that_nobody_tells_is_warned(
    running: bool | None, named: bool, warned: bool
) -> None:
    bench = Bench(tracking=spec_pb2.TrackingSpec(wandb={}, mlflow={}) if named else None)
    admission = Admission(bench.peers, bench.pools, bench.projects, Trackers(running))
    found = [each for each in admission.warnings(bench.spec) if "tracking" in each]
    assert len(found) == int(warned)
    assert not found or "got wandb, mlflow; this installation has no tracking service" in found[0]
