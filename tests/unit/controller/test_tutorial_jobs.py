"""S11, S41, S47: the job files of examples/ are taken, and mean the tutorial's numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.core.contract import parse_yaml, validate
from podium.core.job_environments import environments_of
from podium.environments import load
from podium.environments.serving.convert import unstruct
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.api.specification import complete, violations

EXAMPLES = Path(__file__).parents[3] / "examples"


def accepted(name: str) -> spec_pb2.JobSpec:
    """The job of a file with every default, after all checks that need no other service."""
    spec, problems = parse_yaml((EXAMPLES / name).read_text(), spec_pb2.JobSpec)
    assert problems == []
    return taken(spec)


def taken(spec: spec_pb2.JobSpec) -> spec_pb2.JobSpec:
    """The same of a job."""
    full = complete(spec)
    assert validate(full) == []
    assert violations(pb.Job(id="job", spec=full)) == []
    return full


def environment(spec: spec_pb2.JobSpec):
    """Of the job, with its options."""
    return made(spec.environment)


def made(task: spec_pb2.EnvironmentSpec):
    return load(task.name)(unstruct(task.config))


def test_s11_the_tutorials_training_settings_are_one_job_file() -> None:
    spec = accepted("tutorial_email.yaml")
    assert spec.training.learning_rate == 1e-5
    assert spec.rollout.group_size == 8
    assert spec.rollout.group_size * spec.rollout.groups_per_step == 32
    assert spec.rollout.episode.max_turns == 10
    assert spec.training.loss.kl_coefficient == 0.1
    assert spec.training.steps == 100
    assert spec.rollout.max_staleness == 0
    assert spec.training.loss.objective == spec_pb2.OBJECTIVE_REINFORCE
    assert spec.training.loss.advantage == spec_pb2.ADVANTAGE_KIND_NONE
    assert environment(spec).config.rewards == "tutorial"


def test_s9_the_job_asks_with_the_tutorials_parameters() -> None:
    sampling = accepted("tutorial_email.yaml").rollout.sampling
    assert sampling.max_tokens == 150
    assert sampling.temperature == pytest.approx(0.7)


def test_s12_the_job_keeps_every_checkpoint_that_the_tutorial_would() -> None:
    spec = accepted("tutorial_email.yaml")
    assert spec.retention.keep_last > spec.training.steps
    assert spec.evaluation.every_steps == 10


def test_s41_the_tutorials_2048_settings_are_one_job_file() -> None:
    spec = accepted("tutorial_2048.yaml")
    assert spec.training.learning_rate == 5e-6
    assert spec.rollout.group_size == 16
    assert spec.rollout.group_size * spec.rollout.groups_per_step == 64
    assert spec.rollout.episode.max_turns == 200
    assert spec.training.steps == 500
    assert spec.evaluation.every_steps == 50
    assert spec.evaluation.best_metric == "reward"
    options = environment(spec).config
    assert (options.rewards, options.max_moves) == ("tutorial", 200)


def test_s47_the_coding_job_trains_on_the_simplest_functions() -> None:
    spec = accepted("coding.yaml")
    task = environment(spec)
    names = [each.id for split in ("train", "heldout") for each in task.listed(split)]
    assert "train/add" in names
    assert 16 <= len(names) < 54
    assert task.config.attempts == spec.rollout.episode.max_turns == 1


OF_ROWS = EXAMPLES / "sft.yaml"
JOBS = [*sorted(set(EXAMPLES.glob("*.yaml")) - {OF_ROWS}), EXAMPLES / "own_scorer" / "job.yaml"]


@pytest.mark.parametrize("file", JOBS, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_every_job_file_of_the_examples_is_taken(file: Path) -> None:
    spec = accepted(str(file.relative_to(EXAMPLES)))
    for each in environments_of(spec):
        assert made(each.environment).listed(each.environment.split)


@pytest.mark.parametrize("file", ["job.yaml", "stockroom.yaml"])
def test_the_jobs_of_mcp_servers_are_taken_before_their_servers_are_asked(file: str) -> None:
    assert [each.environment.name for each in environments_of(accepted(f"mcp_rl/{file}"))] == [
        "mcp"
    ]


def test_the_file_for_rows_lacks_only_what_its_rows_say() -> None:
    spec, problems = parse_yaml(OF_ROWS.read_text(), spec_pb2.JobSpec)
    assert [problem.field for problem in problems] == ["training.steps"]
    spec.training.steps = 3
    spec.client.SetInParent()
    assert taken(spec).sft.batch_size == 8
