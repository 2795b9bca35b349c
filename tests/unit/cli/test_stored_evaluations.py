"""What `podium eval` stores in the controller's own service, and what is made of it later."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import podium
import pytest
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.sdk import AsyncClient
from podium.sdk.evaluation import Attempt, attempts_of, compare, results_of, summarise
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium
from support.full import full


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakePodium]:
    async with fake_podium(stored=tmp_path) as served:
        served.registry.publish("mail", 7, {}).aliases[:] = ["best"]
        served.registry.publish("mail", 9, {})
        yield served


async def evaluation(fake: FakePodium, folder: Path, *arguments: str) -> Result:
    return await invoke("eval", *arguments, cwd=folder, environment=fake.environment)


async def stored(fake: FakePodium, folder: Path, *arguments: str) -> dict[str, Any]:
    result = await evaluation(fake, folder, "email_search", *arguments, "-o", "json")
    assert result.code == 0, result.err
    (found,) = json.loads(result.out)
    assert found["evaluation_id"].startswith("eval-")
    return dict(found)


async def test_each_agent_is_stored_with_all_that_its_numbers_depend_on(
    fake: FakePodium, tmp_path: Path
) -> None:
    arguments = ("-a", "base", "-a", "mail", "--name", "nightly/2026-11", "--attempts", "2")
    arguments += ("--seed", "5", "--temperature", "0.5", "--set", "max_results=3")
    result = await evaluation(fake, tmp_path, "run", "email_search", *arguments)
    assert result.code == 0, result.err
    async with AsyncClient(fake.addresses) as client:
        newest, first = [each async for each in client.evaluations.list()]
        results = await client.evaluations.results(newest.id)
    assert f"mail is stored as {newest.id}" in result.err
    assert newest.run == first.run != ""
    assert first.HasField("policy")
    assert first.policy.job == ""
    # The newest when it was measured, by its number.
    assert (newest.agent, newest.policy.job, newest.policy.version) == ("mail", "mail", 9)
    assert (newest.name, newest.project, newest.seed) == ("nightly/2026-11", "default", 5)
    assert (newest.environment.name, newest.environment.split) == ("email_search", "heldout")
    assert newest.environment.config["max_results"] == 3
    assert newest.sampling.temperature == 0.5
    assert newest.episode.max_turns == 10
    assert newest.podium_version == podium.__version__
    assert (newest.scenarios, newest.counted) == (4, 8)
    assert newest.success.mean == 0.75
    assert [list(each.rewards) for each in results] == [[r, r] for r in fake.rollout.rewards]
    assert [each.scenario_id for each in results] == ["0", "1", "2", "3"]


async def test_list_and_show_tell_what_is_stored(fake: FakePodium, tmp_path: Path) -> None:
    found = await stored(fake, tmp_path, "-a", "mail@best", "--name", "a/b")
    which = found["evaluation_id"]
    listed = await evaluation(fake, tmp_path, "list")
    head, row = listed.out.splitlines()
    assert head.split()[:4] == ["ID", "NAME", "AGENT", "ENVIRONMENT"]
    assert row.split()[:5] == [which, "a/b", "mail@best", "email_search", "heldout"]
    assert "75.0% (15.0% to 98.1%)" in row
    for project, expected in (("default", which), ("other", "")):
        names = await evaluation(fake, tmp_path, "list", "--project", project, "-o", "name")
        assert names.out.strip() == expected
    for selector in (which, "a/b"):
        shown = await evaluation(fake, tmp_path, "show", selector)
        assert shown.code == 0, shown.err
        assert "policy       mail@7" in shown.out
        assert "SCENARIO" in shown.out
    whole = json.loads((await evaluation(fake, tmp_path, "show", which, "-o", "json")).out)
    assert [each["scenario_id"] for each in whole["results"]] == ["0", "1", "2", "3"]
    # It is a record of its own: of a version that is gone it tells as before.
    fake.registry.versions.clear()
    fake.jobs.known.clear()
    assert (await evaluation(fake, tmp_path, "show", which)).out == shown.out
    assert (await evaluation(fake, tmp_path, "delete", which)).code == 0
    missing = await evaluation(fake, tmp_path, "show", which)
    assert missing.code == 5
    assert f"there is no stored evaluation '{which}'" in missing.err
    assert "what a job measured is JOB@VERSION" in missing.err


async def test_two_are_compared_as_if_they_had_been_measured_together(
    fake: FakePodium, tmp_path: Path
) -> None:
    first = await stored(fake, tmp_path, "-a", "base", "--attempts", "2")
    fake.rollout.rewards = (0.1, 0.9, 1.0, 1.0)
    second = await stored(fake, tmp_path, "-a", "mail", "--attempts", "2", "--seed", "3")
    pair = (first["evaluation_id"], second["evaluation_id"])
    result = await evaluation(fake, tmp_path, "compare", *pair, "-o", "json")
    assert result.code == 0, result.err
    found = json.loads(result.out)

    def attempts(run: dict[str, Any]) -> list[Attempt]:
        kept = set(Attempt.__dataclass_fields__)
        return [Attempt(**{k: v for k, v in each.items() if k in kept}) for each in run["episodes"]]

    expected = compare(attempts(first), attempts(second))
    assert found["difference"] == expected.difference == 0.0
    assert (found["better"], found["worse"]) == (1, 1)
    assert found["reward_difference"] == pytest.approx(expected.reward_difference)
    assert (found["low"], found["high"]) == (expected.low, expected.high)
    assert found["reward_low"] == pytest.approx(expected.reward_low)
    # What may be why they differ is told.
    assert found["notes"] == ["they differ in seed: 0 and 3"]
    table = await evaluation(fake, tmp_path, "compare", *pair)
    *_, line = table.out.splitlines()
    assert line.startswith(f"mail ({pair[1]}) against base ({pair[0]}): +0.0 points")
    rows = [" ".join(each.split()) for each in table.out.splitlines()]
    # What each did, with intervals, stands above how they differ.
    assert rows[1].startswith(f"base ({pair[0]}) 75.00% 15.0% to 98.1% 75.00% 0.728 ")
    sides = found["of"]
    assert [sides[each]["reward"] for each in pair] == pytest.approx([0.7275, 0.75])
    assert sides[pair[1]]["reward_low"] < 0.75 < sides[pair[1]]["reward_high"]


def measured(version: int, mode: str, *successes: int) -> list[trajectory_pb2.Trajectory]:
    """Attempts at the scenarios of `email_search`, as a job's evaluation has them."""
    found = []
    for index, success in enumerate(successes):
        group = f"mail/v{version}-{mode}/g{index}"
        made = trajectory_pb2.Trajectory(
            id=f"{group}/t0",
            group_id=group,
            scenario_id=str(index),
            environment_reward=success - 0.25,
            stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            evaluation_mode=mode,
        )
        made.metrics["success"] = success
        found.append(made)
    return found


@pytest.fixture
def trained(fake: FakePodium) -> FakePodium:
    """A job that was evaluated at versions 0 and 9."""
    spec = spec_pb2.JobSpec(evaluation=spec_pb2.EvaluationSpec(split="heldout", samples=1))
    spec.environment.name = "email_search"
    spec.environment.address = "where:1"
    fake.jobs.known["mail"] = jobs_pb.Job(id="mail", spec=spec)
    fake.jobs.trajectories = [
        *measured(0, "sampled", 0, 1, 0, 0),
        *measured(9, "greedy", 1, 1, 1, 1),
        *measured(9, "sampled", 1, 1, 0, 1),
    ]
    fake.jobs.evaluations = [jobs_pb.Evaluation(version=v, mode="sampled") for v in (0, 9)]
    fake.registry.publish("mail", 9, {}).aliases[:] = ["latest"]
    return fake


async def test_what_a_job_measured_is_compared_with_itself_and_with_others(
    trained: FakePodium, tmp_path: Path
) -> None:
    done = await evaluation(trained, tmp_path, "compare", "mail@0", "mail@latest", "-o", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["first"], found["second"], found["scenarios"]) == ("mail@0", "mail@9", 4)
    assert (found["difference"], found["better"], found["worse"]) == (0.5, 2, 0)
    assert found["reward_difference"] == 0.5
    assert found["low"] < 0.5 < found["high"] <= 1
    assert found["reward_low"] < 0.5 < found["reward_high"]
    assert found["notes"] == []
    greedy = await evaluation(trained, tmp_path, "compare", "mail@9", "mail@9/greedy")
    assert "mail@9/greedy against mail@9: +25.0 points" in greedy.out
    assert "they differ in sampling" in greedy.err
    # And with what was measured apart from the job, on the same scenarios.
    apart = (await stored(trained, tmp_path, "-a", "base"))["evaluation_id"]
    both = await evaluation(trained, tmp_path, "compare", apart, "mail@9", "-o", "json")
    assert both.code == 0, both.err
    assert json.loads(both.out)["scenarios"] == 4
    shown = await evaluation(trained, tmp_path, "show", "mail@9", "-o", "json")
    assert [each["successes"] for each in json.loads(shown.out)["results"]] == [
        [True],
        [True],
        [False],
        [True],
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mail@3", "mail has no sampled evaluation of version 3; it has those of 0, 9"),
        ("mail@0/greedy", "mail has no greedy evaluation of version 0"),
        ("mail@9/greddy", "got 'mail@9/greddy'; allowed are JOB@VERSION and JOB@ALIAS"),
        ("mial@9", "there is no job 'mial'"),
    ],
)
async def test_a_name_that_nothing_was_measured_under_is_told(
    trained: FakePodium, tmp_path: Path, name: str, said: str
) -> None:
    result = await evaluation(trained, tmp_path, "compare", "mail@0", name)
    assert result.code != 0
    assert said in result.err, result.err


async def test_how_it_was_sampled_is_read_from_no_id_and_an_old_controller_does_not_tell(
    trained: FakePodium, tmp_path: Path
) -> None:
    for number, each in enumerate(trained.jobs.trajectories):
        version = "v0-" if "/v0-" in each.id else "v9-"
        each.id, each.group_id = f"mail/{version}{number}/t0", f"mail/{version}{number}"
    pair = ("compare", "mail@9", "mail@9/greedy")
    greedy = await evaluation(trained, tmp_path, *pair)
    assert "mail@9/greedy against mail@9: +25.0 points" in greedy.out, greedy.err
    for each in trained.jobs.trajectories:
        each.ClearField("evaluation_mode")
    old = await evaluation(trained, tmp_path, *pair)
    assert old.code == 5
    assert "the controller is older than this client and does not tell which" in old.err


async def test_of_a_job_with_several_environments_one_is_chosen_or_all(
    trained: FakePodium, tmp_path: Path
) -> None:
    spec = trained.jobs.known["mail"].spec
    spec.ClearField("environment")
    for name in ("email_search", "tic_tac_toe"):
        spec.environments.add(weight=1).environment.name = name
    for each in trained.jobs.trajectories:
        each.environment = ("email_search", "tic_tac_toe")[int(each.scenario_id) % 2]
    pair = ("compare", "mail@0", "mail@9")
    whole = json.loads((await evaluation(trained, tmp_path, *pair, "-o", "json")).out)
    assert whole["scenarios"] == 4
    one = ("--environment", "tic_tac_toe", "-o", "json")
    part = json.loads((await evaluation(trained, tmp_path, *pair, *one)).out)
    assert (part["scenarios"], part["difference"]) == (2, 0.5)
    wrong = await evaluation(trained, tmp_path, *pair, "--environment", "chess")
    assert "got 'chess'; the job is evaluated on email_search, tic_tac_toe" in wrong.err


async def test_different_scenarios_are_refused_or_the_common_ones_compared(
    fake: FakePodium, tmp_path: Path
) -> None:
    first = (await stored(fake, tmp_path, "-a", "base"))["evaluation_id"]
    second = (await stored(fake, tmp_path, "-a", "base", "--limit", "3"))["evaluation_id"]
    other = (await stored(fake, tmp_path, "-a", "base", "--split", "train"))["evaluation_id"]
    refused = await evaluation(fake, tmp_path, "compare", first, second)
    assert refused.code == 5
    assert f"1 scenarios are in {first} alone ('3')" in refused.err
    assert "--common compares" in refused.err
    common = await evaluation(fake, tmp_path, "compare", first, second, "--common", "-o", "json")
    assert json.loads(common.out)["scenarios"] == 3
    split = await evaluation(fake, tmp_path, "compare", first, other)
    assert "split 'heldout' and 'train'" in split.err


async def test_a_name_of_several_is_told_with_their_ids(fake: FakePodium, tmp_path: Path) -> None:
    ids = [
        (await stored(fake, tmp_path, "-a", "base", "--name", "same"))["evaluation_id"]
        for _ in range(2)
    ]
    result = await evaluation(fake, tmp_path, "show", "same")
    assert result.code == 5
    assert f"2 stored evaluations are named 'same': {ids[1]}, {ids[0]}" in result.err
    missing = await evaluation(fake, tmp_path, "compare", ids[0], "n" * 200)
    assert missing.code in (2, 5)
    assert "Traceback" not in missing.err


async def test_who_cannot_store_says_so_and_still_shows_the_numbers(tmp_path: Path) -> None:
    async with fake_podium() as fake:
        told = await evaluation(fake, tmp_path, "email_search", "-a", "base")
        must = await evaluation(fake, tmp_path, "email_search", "-a", "base", "--store")
        not_at_all = await evaluation(fake, tmp_path, "email_search", "-a", "base", "--no-store")
    assert (told.code, must.code, not_at_all.code) == (0, 1, 0)
    assert told.out == must.out == not_at_all.out
    assert "base is not stored" in told.err
    assert "base is not stored" in must.err
    assert "stored" not in not_at_all.err


def test_numbers_that_are_none_are_left_out_here_and_where_they_are_stored() -> None:
    attempts = [
        Attempt("a", 0, math.nan, True, 1, {"words": math.nan, "success": 1.0}),
        Attempt("a", 1, 2.0, True, 1, {"words": 4.0, "success": 0.0}),
        Attempt("b", 0, math.inf, True, 1, {"success": 1.0}),
        Attempt("b", 1, 0.0, False, 0, failure="Lost: x", unanswered=True),
    ]
    summary = summarise(attempts)
    assert (summary.reward, summary.unscored, summary.metrics["words"]) == (2.0, 2, 4.0)
    results = results_of(attempts)
    assert dict(results[0].metrics) == {"success": 0.5, "words": 4.0}
    assert math.isnan(results[0].rewards[0])
    assert math.isnan(results[1].rewards[0])
    assert results[1].unanswered == 1
    # Read again it says the same.
    again = summarise(attempts_of(results))
    assert (again.success, again.low, again.reward) == (summary.success, summary.low, 2.0)
    difference = compare(attempts, attempts_of(results))
    assert (difference.scenarios, difference.reward_difference) == (2, 0.0)
    nothing = compare([attempts[2]], [attempts[2]])
    assert math.isnan(nothing.reward_difference)
    assert nothing.reward_low is None


# Two thousand fill several messages already.
@pytest.mark.parametrize("scenarios", [2_000, full(10_000)])
async def test_thousands_of_scenarios_of_many_attempts_are_stored_and_read(
    fake: FakePodium, scenarios: int
) -> None:
    attempts = [
        Attempt(f"s/{i}", j, i / scenarios, True, 3, {"success": float(j % 2)})
        for i in range(scenarios)
        for j in range(2)
    ]
    described = pb.StoredEvaluation(agent="baseline:x")
    described.environment.name = "mine"
    async with AsyncClient(fake.addresses) as client:
        made = await client.evaluations.store(described, results_of(attempts), request_id="r")
        again = await client.evaluations.store(described, results_of(attempts), request_id="r")
        found = await client.evaluations.results(made.id)
    assert again == made
    assert (made.scenarios, made.counted, made.success.mean) == (scenarios, 2 * scenarios, 0.5)
    assert attempts_of(found)[-1].reward == attempts[-1].reward
    assert len(found) == scenarios
