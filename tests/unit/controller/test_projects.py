"""Projects: what the file may say, and what follows for the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.pools.projects import ProjectLimits, Projects


def load(tmp_path: Path, text: str) -> Projects:
    path = tmp_path / "projects.yaml"
    path.write_text(text)
    return Projects.load(path)


def test_limits_are_read_by_name_and_each_may_be_left_out(tmp_path: Path) -> None:
    limits = "maxActiveJobs: 4, maxGpus: 0, maxPoolShare: 0.5, maxJudgeTokens: 5000"
    projects = load(tmp_path, f"a: {{{limits}}}\nb: {{}}\n")
    assert projects.of("a") == ProjectLimits(
        maxActiveJobs=4, maxGpus=0, maxPoolShare=0.5, maxJudgeTokens=5000
    )
    assert projects.of("b") == ProjectLimits()
    assert (projects.of("a").weight, projects.of("b").weight) == (0.5, 1.0)
    assert projects.of("gone") == ProjectLimits()


def test_a_project_s_budget_is_of_trainers_pools_and_judges(tmp_path: Path) -> None:
    projects = load(tmp_path, "a: {maxGpuHours: 2, maxJudgeCost: 0.5}\nb: {maxGpus: 1}\nc: {}")
    limits = projects.of("a")
    assert list(projects.with_budgets()) == ["a"]
    half = {"trainer_gpu_seconds": 3600.0, "pool_gpu_seconds": 3599.0, "trainer_seconds": 1e9}
    assert limits.exhausted("a", pb.Usage(**half, judge_cost=0.49)) == ""
    found = limits.exhausted("a", pb.Usage(trainer_gpu_seconds=3600, pool_gpu_seconds=3600))
    assert found == "of the project 'a' maxGpuHours is 2 and it has used 2 this month"
    assert "maxJudgeCost is 0.5" in limits.exhausted("a", pb.Usage(judge_cost=0.5))
    assert projects.of("b").exhausted("b", pb.Usage(trainer_gpu_seconds=1e12)) == ""
    # Of nothing, nothing may be used.
    assert ProjectLimits(maxGpuHours=0).exhausted("z", pb.Usage())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a: {maxJobs: 4}", "projects_file.a.maxJobs"),
        ("a: {maxActiveJobs: -1}", "projects_file.a.maxActiveJobs"),
        ("a: {maxActiveJobs: '4'}", "projects_file.a.maxActiveJobs"),
        ("a: {maxJudgeTokens: 1.5}", "projects_file.a.maxJudgeTokens"),
        ("a: {maxGpuHours: -1}", "projects_file.a.maxGpuHours"),
        ("a: {maxGpuHours: .inf}", "projects_file.a.maxGpuHours"),
        ("a: {maxJudgeCost: .nan}", "projects_file.a.maxJudgeCost"),
        ("a: {maxJudgeCost: '3'}", "projects_file.a.maxJudgeCost"),
        ("a: {maxPoolShare: 0}", "projects_file.a.maxPoolShare"),
        ("a: {maxPoolShare: 1.5}", "projects_file.a.maxPoolShare"),
        ("a", "projects_file"),
        ("a: [", "projects_file"),
    ],
)
def test_what_the_file_says_wrong_is_named(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        load(tmp_path, text)
    assert [violation.field for violation in raised.value.violations] == [field]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        Projects.load(tmp_path / "nowhere.yaml")


def test_with_a_file_only_its_projects_and_the_default_one_are_taken(tmp_path: Path) -> None:
    projects = load(tmp_path, "b: {}\na: {}\n")
    assert projects.violations("a") == projects.violations("default") == []
    (violation,) = projects.violations("c")
    assert violation.field == "job.spec.project"
    assert violation.description == "got 'c'; allowed are a, b, default"
    assert Projects.load(None).violations("c") == []


def test_metrics_name_only_what_the_installation_names(tmp_path: Path) -> None:
    projects = load(tmp_path, "a: {}\n")
    assert [projects.label(name) for name in ("a", "default", "c")] == ["a", "default", "other"]
    assert projects.labels() == ["a", "default", "other"]
