"""Which environment each group is of, and what a job may say of several."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from podium.core.job_environments import title_of
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.api.admission import Admission
from podium_controller.api.environments import environment_violations
from podium_controller.api.specification import complete
from podium_controller.domain.step_metrics import evaluation_metrics, step_metrics
from podium_controller.training.mixture import Mixture
from support.fakes.bench import Bench


def environment(task: str, weight: float = 1, **more: Any) -> spec_pb2.WeightedEnvironment:
    made = spec_pb2.WeightedEnvironment(weight=weight, **{"from_step": 1, **more})
    made.environment.name, made.environment.split = task, "train"
    return made


def draws(mixture: Mixture, steps: range, groups: int) -> list[tuple[int, int]]:
    return [mixture.draw(step, index) for step in steps for index in range(groups)]


def test_what_is_drawn_again_is_of_the_next_environment_that_takes_part() -> None:
    late = environment("late", from_step=5)
    mixture = Mixture([environment("a"), late, environment("b")], 5, 2)
    for index in range(2):
        found, position = mixture.draw(2, index)
        assert mixture.redraw(2, index, 0) == (found, position)
        others = [mixture.redraw(2, index, times) for times in range(4)]
        assert [which for which, _ in others] == [found, 2 - found] * 2
        assert len({place for _, place in others}) == 4


@pytest.mark.parametrize("groups", [1, 3, 8])
@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (0.1, 0.2, 0.7)])
def test_each_step_has_each_share_up_to_a_group(groups: int, weights: tuple[float, ...]) -> None:
    mixture = Mixture([environment("e", weight) for weight in weights], 5, groups)
    steps = 2000
    total: Counter[int] = Counter()
    for step in range(1, steps + 1):
        counts = Counter(which for which, _ in draws(mixture, range(step, step + 1), groups))
        for which, weight in enumerate(weights):
            assert abs(counts[which] - groups * weight / sum(weights)) < 1
        total += counts
    for which, weight in enumerate(weights):
        assert total[which] == pytest.approx(steps * groups * weight / sum(weights), abs=4)


def test_a_draw_depends_on_nothing_but_seed_step_and_index() -> None:
    some = [environment("a", 2), environment("b", 1)]
    whole = draws(Mixture(some, 5, 4), range(1, 30), 4)
    resumed = Mixture(some, 5, 4)
    assert draws(resumed, range(20, 30), 4) == whole[19 * 4 :]
    assert draws(resumed, range(1, 20), 4) == whole[: 19 * 4]
    assert draws(Mixture(some, 6, 4), range(1, 30), 4) != whole


def test_each_environment_goes_through_its_own_scenarios_in_order() -> None:
    found = draws(Mixture([environment("a", 2), environment("b", 1)], 5, 4), range(1, 30), 4)
    for which in (0, 1):
        positions = [position for drawn, position in found if drawn == which]
        assert positions == list(range(len(positions)))


def test_one_environment_is_drawn_from_as_ever() -> None:
    found = draws(Mixture([environment("a", 0.3)], 5, 3), range(1, 9), 3)
    assert found == [(0, position) for position in range(24)]


def test_an_environment_takes_part_in_its_steps_alone() -> None:
    some = [environment("a", to_step=2), environment("b", from_step=2), environment("c", 2)]
    some[2].from_step = 4
    found = draws(Mixture(some, 0, 2), range(1, 6), 2)
    assert [which for which, _ in found[:6]] == [0, 0, 0, 1, 1, 1]
    assert Counter(which for which, _ in found[6:])[0] == 0
    assert [p for which, p in found if which == 0] == [0, 1, 2]


def job(*environments: spec_pb2.WeightedEnvironment, **more: Any) -> spec_pb2.JobSpec:
    training = spec_pb2.TrainingSpec(steps=10)
    return complete(
        spec_pb2.JobSpec(base_model="m", training=training, environments=environments, **more)
    )


def refused(*environments: spec_pb2.WeightedEnvironment, **more: Any) -> list[str]:
    return [each.field for each in environment_violations(job(*environments, **more))]


def test_several_environments_have_defaults_and_a_title() -> None:
    plain = spec_pb2.WeightedEnvironment(environment=spec_pb2.EnvironmentSpec(name="a"))
    made = job(plain, environment("b", name="second"))
    assert environment_violations(made) == []
    first = made.environments[0]
    assert (first.weight, first.from_step, first.environment.split) == (1, 1, "train")
    assert title_of(made) == "a + second"
    assert title_of(job(environment=spec_pb2.EnvironmentSpec(name="c"))) == "c"
    assert title_of(job(client=spec_pb2.ClientSpec())) == ""


def test_a_job_has_one_environment_or_several() -> None:
    a, b = environment("a"), environment("b")
    one = spec_pb2.EnvironmentSpec(name="c")
    assert refused(a, b, environment=one) == ["job.spec.environment"]
    assert refused() == ["job.spec.environment"]
    (found,) = environment_violations(job(a, b, environment=one))
    assert (
        found.description == "got 'c' beside 2 in job.spec.environments; allowed is one of the two"
    )


def test_names_are_told_apart_and_fit_a_metric() -> None:
    names = [f"job.spec.environments[{i}].name" for i in (0, 1)]
    assert refused(environment("a"), environment("a")) == names
    assert refused(environment("a"), environment("a", name="b")) == []
    assert refused(environment("a"), environment("a/b c")) == names[1:]
    assert refused(environment("a"), environment("x" * 65)) == names[1:]


def test_every_step_has_an_environment_and_none_is_for_no_step() -> None:
    def at(first: int, last: int | None) -> spec_pb2.WeightedEnvironment:
        return environment(f"e{first}", from_step=first, **({"to_step": last} if last else {}))

    assert refused(at(1, 4), at(5, None)) == refused(at(1, 9), at(3, 10)) == []
    (gap,) = environment_violations(job(at(1, 4), at(6, None)))
    assert (gap.field, gap.description[:19]) == ("job.spec.environments", "step 5 of 10 is of ")
    assert refused(at(2, None)) == refused(at(1, 9)) == ["job.spec.environments"]
    assert refused(at(1, None), at(5, 4)) == ["job.spec.environments[1].to_step"]


def test_images_are_of_a_job_with_one_environment() -> None:
    placed = environment("a")
    placed.environment.image = "mine:1"
    path = "job.spec.environments[0].environment"
    assert refused(placed, environment("b")) == [f"{path}.image"]
    placed.environment.image, placed.environment.split = "", "train"
    placed.environment.replicas = 2
    assert refused(placed, environment("b")) == [f"{path}.replicas"]


def test_an_evaluation_names_environments_of_the_job() -> None:
    told = spec_pb2.EvaluationSpec(environments=["b"])
    assert refused(environment("a"), environment("b"), evaluation=told) == []
    assert refused(environment("a"), evaluation=told) == ["job.spec.evaluation.environments"]
    single = spec_pb2.EnvironmentSpec(name="b")
    assert refused(environment=single, evaluation=told) == ["job.spec.evaluation.environments"]


async def test_each_environment_is_asked_for_its_splits_before_a_job_is_queued() -> None:
    made = job(environment("double"), environment("doubel"), evaluation=spec_pb2.EvaluationSpec())
    bench = Bench(environments=made.environments, evaluation=made.evaluation)
    admission = Admission(bench.peers, bench.pools, bench.projects)
    assert await admission.check_environment(bench.spec) == []
    bench.spec.environments[1].environment.split = "nowhere"
    (found,) = await admission.check_environment(bench.spec)
    assert found.field == "job.spec.environments[1].environment.name"
    bench.spec.environments[1].environment.name = "double"
    (found,) = await admission.check_environment(bench.spec)
    assert found.field == "job.spec.environments[1].environment.split"
    bench.spec.environments[1].environment.split = "train"
    bench.spec.evaluation.split = "later"
    assert len(await admission.check_environment(bench.spec)) == 2
    bench.spec.evaluation.environments.append("doubel")
    assert [v.field for v in await admission.check_environment(bench.spec)] == []


def attempt(of: str, reward: float, **metrics: float) -> trajectory_pb2.Trajectory:
    return trajectory_pb2.Trajectory(environment=of, reward=reward, metrics=metrics)


def test_each_environment_has_its_own_numbers() -> None:
    found = [attempt("a", 1, success=1), attempt("a", 0, success=0), attempt("b", 5)]
    metrics = step_metrics([trajectory_pb2.Group(trajectories=found)], 0)
    assert metrics["reward_mean"] == 2
    # One that does not know success has not failed.
    assert metrics["success_mean"] == 0.5
    own = {name: value for name, value in metrics.items() if "/" in name}
    assert own == {
        "env/a/trajectories": 2,
        "env/a/reward_mean": 0.5,
        "env/a/success_mean": 0.5,
        "env/b/trajectories": 1,
        "env/b/reward_mean": 5,
    }
    assert evaluation_metrics(found) == {
        "reward": 2,
        "success": 0.5,
        "env/a/reward": 0.5,
        "env/a/success": 0.5,
        "env/b/reward": 5,
    }
