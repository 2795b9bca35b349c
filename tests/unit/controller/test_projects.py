"""Projects: what the file may say, and what follows for the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.budget import ProjectUse
from podium_controller.domain.waits import Wait
from podium_controller.pools.projects import ProjectLimits, Projects, use_of


def load(tmp_path: Path, text: str) -> Projects:
    path = tmp_path / "projects.yaml"
    path.write_text(text)
    return Projects.load(path)


def in_month(**used: float) -> ProjectUse:
    return ProjectUse(month=pb.Usage(**used))  # type: ignore[arg-type]


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
    assert limits.exhausted("a", in_month(**half, judge_cost=0.49)) is None
    found = limits.exhausted("a", in_month(trainer_gpu_seconds=3600, pool_gpu_seconds=3600))
    assert found == Wait(
        "PROJECT_BUDGET_EXHAUSTED",
        "of the project 'a' maxGpuHours is 2 and it has used 2 this month",
    )
    found = limits.exhausted("a", in_month(judge_cost=0.5))
    assert found
    assert "maxJudgeCost is 0.5" in found.message
    assert projects.of("b").exhausted("b", in_month(trainer_gpu_seconds=1e12)) is None
    # Of nothing, nothing may be used.
    assert ProjectLimits(maxGpuHours=0).exhausted("z", ProjectUse())


def test_a_total_has_a_reason_of_its_own_and_comes_before_a_month_s(tmp_path: Path) -> None:
    totals = "maxTotalGpuHours: 4, maxTotalJudgeCost: 2"
    projects = load(tmp_path, f"a: {{{totals}}}\nb: {{{totals}, maxGpuHours: 1}}")
    limits = projects.of("a")
    assert sorted(projects.with_budgets()) == ["a", "b"]
    # A month alone is no total.
    assert limits.exhausted("a", in_month(judge_cost=9, trainer_gpu_seconds=1e9)) is None
    assert limits.exhausted("a", ProjectUse(total=pb.Usage(judge_cost=1.99))) is None
    found = limits.exhausted("a", ProjectUse(total=pb.Usage(pool_gpu_seconds=4 * 3600)))
    assert found == Wait(
        "PROJECT_TOTAL_BUDGET_EXHAUSTED",
        "of the project 'a' maxTotalGpuHours is 4 and it has used 4 in all",
    )
    much = pb.Usage(trainer_gpu_seconds=5 * 3600, judge_cost=2)
    found = projects.of("b").exhausted("b", ProjectUse(month=much, total=much))
    assert found == Wait(
        "PROJECT_TOTAL_BUDGET_EXHAUSTED",
        "of the project 'b' maxTotalGpuHours is 4 and it has used 5; "
        "maxTotalJudgeCost is 2 and it has used 2 in all",
    )


async def test_all_time_is_asked_for_where_it_is_bounded_alone() -> None:
    asked: list[tuple[bool, str]] = []

    async def of_projects(since: int, project: str) -> dict[str, pb.Usage]:
        asked.append((since == 0, project))
        return {"a": pb.Usage(judge_cost=7 if since == 0 else 3)}

    monthly, total = ProjectLimits(maxJudgeCost=5), ProjectLimits(maxTotalJudgeCost=5)
    assert await use_of({}, of_projects) == {}
    assert asked == []
    found = await use_of({"a": monthly, "b": monthly}, of_projects)
    assert found == {"a": in_month(judge_cost=3), "b": ProjectUse()}
    assert asked == [(False, "")]
    asked.clear()
    found = await use_of({"a": total, "b": monthly}, of_projects, "a")
    assert found == {"a": ProjectUse(pb.Usage(judge_cost=3), pb.Usage(judge_cost=7))}
    assert asked == [(False, "a"), (True, "a")]


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
        ("a: {maxTotalGpuHours: -0.5}", "projects_file.a.maxTotalGpuHours"),
        ("a: {maxTotalGpuHours: yes}", "projects_file.a.maxTotalGpuHours"),
        ("a: {maxTotalJudgeCost: .inf}", "projects_file.a.maxTotalJudgeCost"),
        ("a: {maxTotalJudgeCost: .nan}", "projects_file.a.maxTotalJudgeCost"),
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
