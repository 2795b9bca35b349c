"""Supervised fine-tuning by its client: a real controller, the services that it drives doubles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import podium
import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    PodiumError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.sdk.connection.addresses import Addresses
from podium.types.v1 import spec_pb2
from support.cli import Result, invoke
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.sessions import batch

__all__ = ["client", "fleet", "registry"]

ROWS = 10
SPEC = {
    "base_model": BASE_MODEL,
    "training": {"learning_rate": 1e-3},
    "sft": {"epochs": 2, "batch_size": 4},
    "seed": 11,
    "recovery_timeout_seconds": 60,
}
STEPS = 6


@pytest.fixture
async def sdk(fleet: Fleet, client: Client) -> AsyncIterator[podium.AsyncClient]:
    addresses = Addresses(
        controller=client.address,
        registry=fleet.registry.address,
        inference=fleet.inference.address,
        rollout="",
        judge="",
    )
    async with podium.AsyncClient(addresses) as connected:
        yield connected


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"ask {number}"},
                {"role": "assistant", "content": f"answer {number}"},
            ]
        }
        for number in range(count)
    ]


def file(folder: Path, count: int = ROWS) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows(count)))
    return path


async def learned(client: Client, job_id: str) -> list[tuple[str, list[int]]]:
    """What each step was given, in order."""
    return [
        (each.id.removeprefix(job_id), list(each.histories[0].tokens.token_ids))
        for each in await client.trajectories(job_id)
    ]


async def test_rows_train_without_judge_or_rollouts_and_what_is_held_out_is_measured(
    fleet: Fleet, client: Client, sdk: podium.AsyncClient, tmp_path: Path
) -> None:
    fleet.trainer.tells = {"heldout_loss": 1.25}
    run = await sdk.train_sft(SPEC, file(tmp_path), heldout=rows(2), progress=False)
    job = run.job
    assert job.state == pb.JOB_STATE_SUCCEEDED
    assert job.spec.training.loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
    assert (job.spec.sft.rows, job.spec.sft.heldout_rows) == (ROWS, 2)
    assert job.completed_steps == STEPS
    assert fleet.judge.judged == []
    assert fleet.rollout.requests == []
    assert job.usage.sampled_tokens == 0
    assert fleet.trainer.taken == [(job.id, step) for step in range(1, STEPS + 1)]
    steps = await client.steps(job.id)
    assert [len(step.group_ids) for step in steps] == [6, 4, 2, 4, 4, 4]
    assert [step.metrics.get("groups_heldout") for step in steps] == [2, None, None, None, None, 2]
    trained = [each for each in await client.trajectories(job.id) if "train" in each.scenario_id]
    assert len(trained) == 2 * ROWS
    assert run.losses == {step: 1 / step for step in range(1, STEPS + 1)}
    # What is best is an alias, as an evaluation's is; of equals the older one.
    assert (await sdk.checkpoints.get(job.id, "best")).manifest.version == run.best_version == 1
    # Called again it has nothing to do.
    assert (await sdk.train_sft(SPEC, file(tmp_path), heldout=rows(2))).job.id == job.id
    assert len(fleet.trainer.taken) == STEPS


async def test_a_client_that_was_interrupted_goes_on_and_every_row_trains_as_if_it_was_not(
    fleet: Fleet, client: Client, sdk: podium.AsyncClient, tmp_path: Path
) -> None:
    path = file(tmp_path)
    await sdk.train_sft(SPEC, path, job_id="undisturbed", progress=False)
    for step in (2, 4):
        hold = fleet.hold("step:begin", str(step))
        running = asyncio.create_task(sdk.train_sft(SPEC, path, job_id="cut", progress=False))
        await hold.reached()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        hold.release()
    run = await sdk.train_sft(SPEC, path, job_id="cut", progress=False)
    assert run.job.completed_steps == STEPS
    taken = [step for job, step in fleet.trainer.taken if job == "cut"]
    assert taken == list(range(1, STEPS + 1))
    assert await learned(client, "cut") == await learned(client, "undisturbed")


async def test_a_job_that_was_begun_with_other_rows_is_not_gone_on_with(
    client: Client, sdk: podium.AsyncClient
) -> None:
    await sdk.train_sft(SPEC, rows(), job_id="sft", progress=False)
    for changed, data, named in (
        (SPEC, rows(ROWS + 1), "sft"),
        ({**SPEC, "sft": {"epochs": 1, "batch_size": 4}}, rows(), "training.steps"),
        ({**SPEC, "seed": 12}, rows(), "seed"),
    ):
        with pytest.raises(AlreadyExistsError, match=named) as caught:
            await sdk.train_sft(changed, data, job_id="sft", progress=False)
        assert caught.value.reason == "JOB_DIFFERS"
    other = await client.create(small_job(1), "other")
    with pytest.raises(AlreadyExistsError, match="other values"):
        await sdk.train_sft(SPEC, rows(), job_id=other.id, progress=False)


async def test_a_jobs_best_episodes_train_with_the_tokens_that_were_sampled(
    client: Client, sdk: podium.AsyncClient
) -> None:
    source = await client.create(small_job(2), "source")
    await client.succeeded(source.id)
    stored = await client.trajectories(source.id)
    highest = max(each.reward for each in stored)
    wanted = {each.id for each in stored if each.reward == highest}
    chosen = podium.Chosen(source.id, min_reward=highest)
    run = await sdk.train_sft(SPEC, from_job=chosen, job_id="own", progress=False)
    found = await client.trajectories("own")
    assert {each.scenario_id for each in found} == wanted
    assert run.job.spec.sft.rows == len(wanted)
    tokens = {each.id: each.histories[0].tokens for each in stored}
    for each in found:
        record = each.histories[0].tokens
        assert record.token_ids == tokens[each.scenario_id].token_ids
        assert record.spans == tokens[each.scenario_id].spans
        assert not record.logprobs
    share = podium.Chosen(source.id, best=0.25)
    best = await sdk.train_sft(SPEC, from_job=share, job_id="share", progress=False)
    assert best.job.spec.sft.rows == len(stored) / 4
    none = podium.Chosen(source.id, min_reward=highest + 1)
    with pytest.raises(FailedPreconditionError) as caught:
        await sdk.train_sft(SPEC, from_job=none, progress=False)
    assert caught.value.reason == "NOTHING_CHOSEN"
    other = {**SPEC, "base_model": "another"}
    with pytest.raises(FailedPreconditionError) as refused:
        await sdk.train_sft(other, from_job=share, progress=False)
    assert refused.value.reason == "BASE_MODEL_DIFFERS"


async def test_a_fork_of_fine_tuning_counts_on_for_another_objective(
    client: Client, sdk: podium.AsyncClient
) -> None:
    first = await sdk.train_sft(SPEC, rows(), job_id="taught", progress=False)
    spec = small_job(STEPS + 2)
    spec.fork.model, spec.fork.version = first.id, STEPS
    job = await client.create(spec, "grpo")
    assert (await client.succeeded(job.id)).completed_steps == STEPS + 2
    back = {**SPEC, "fork": {"model": "grpo"}}
    again = await sdk.train_sft(back, rows(), job_id="again", progress=False)
    assert again.job.spec.fork.version == STEPS + 2
    assert again.job.completed_steps == 2 * STEPS + 2


async def test_nothing_is_made_where_a_row_is_wrong_or_there_is_none(
    client: Client, sdk: podium.AsyncClient, tmp_path: Path
) -> None:
    path = file(tmp_path)
    with path.open("a") as more:
        more.write('{"messages": [{"role": "user", "content": "refused"}]}\n')
    with pytest.raises(InvalidArgumentError, match=r"train\.jsonl:11: messages: got none"):
        await sdk.train_sft(SPEC, path, job_id="wrong", progress=False)
    with pytest.raises(InvalidArgumentError, match="got no rows"):
        await sdk.train_sft(SPEC, job_id="wrong", progress=False)
    with pytest.raises(PodiumError, match="wrong"):
        await client.get("wrong")
    run = await sdk.train_sft(SPEC, path, job_id="wrong", skip_bad=True, progress=False)
    assert run.job.spec.sft.rows == ROWS


async def test_a_model_of_the_sdk_is_fine_tuned_in_the_order_of_its_rows(
    client: Client, sdk: podium.AsyncClient
) -> None:
    model = podium.TrainableModel("agent", base_model=BASE_MODEL, spec={"sft": {}})
    await model.register(sdk)
    attempt = podium.Trajectory(messages_and_choices=rows(1)[0]["messages"])
    config = podium.TrainSFTConfig(batch_size=2)
    result = await model.train_sft([attempt, *rows(3)], config)
    assert result.step == 2
    found = await client.trajectories(model.name)
    assert [each.scenario_id for each in found] == [f"rows[{n}]" for n in range(4)]
    assert found[0].histories[0].tokens == found[1].histories[0].tokens


async def test_a_model_that_samples_is_shown_rows_before_and_between_its_own_attempts(
    fleet: Fleet, client: Client, sdk: podium.AsyncClient
) -> None:
    spec = {"recovery_timeout_seconds": 60}
    model = podium.TrainableModel("shown", base_model=BASE_MODEL, spec=spec)
    await model.register(sdk)
    config = podium.TrainSFTConfig(learning_rate=[1e-3, 5e-4], batch_size=2)
    assert (await model.train_sft(rows(3), config, progress=False)).step == 2
    assert fleet.judge.judged == []
    assert (await sdk.jobs.get(model.name)).usage.sampled_tokens == 0
    (own,) = batch(model.name, 2, groups=1)
    await sdk.sessions.submit(model.name, [own], request_id="rl")
    assert (await model.backend.trained(model.name, 3)).step == 3
    assert fleet.judge.judged == [f"{model.name}/s3/g0"]
    assert (await model.train_sft(rows(1), progress=False)).step == 4
    assert fleet.judge.judged == [f"{model.name}/s3/g0"]
    told = [groups[0].batch_training for groups in fleet.trainer.given]
    assert [each.supervised for each in told] == [True, True, False, True]
    assert [each.learning_rate for each in told] == [1e-3, 5e-4, 0, 5e-5]
    own.batch_training.supervised = True
    mixed = [*batch(model.name, 4, groups=1), own]
    with pytest.raises(InvalidArgumentError, match=r"groups\[1\]\.batch_training: differs"):
        await sdk.sessions.submit(model.name, mixed, request_id="mixed")
    own.batch_training.learning_rate = -1
    with pytest.raises(InvalidArgumentError, match=r"batch_training\.learning_rate: got -1"):
        await sdk.sessions.submit(model.name, [own], request_id="negative")


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "sft.yaml"
    path.write_text(
        f"base_model: {BASE_MODEL}\ntraining: {{learning_rate: 1e-3}}\nsft: {{batch_size: 4}}\n"
    )
    return path


async def command(sdk: podium.AsyncClient, folder: Path, *words: str) -> Result:
    """`podium sft`, where the fleet's services are."""
    found = sdk.addresses
    environment = {
        "PODIUM_ADDRESS": found.controller,
        "PODIUM_REGISTRY_ADDRESS": found.registry,
        "PODIUM_INFERENCE_ADDRESS": found.inference,
    }
    return await invoke("sft", *words, cwd=folder, environment=environment)


async def test_the_command_trains_and_says_what_is_best(
    fleet: Fleet, sdk: podium.AsyncClient, tmp_path: Path, job_file: Path
) -> None:
    fleet.trainer.tells = {"heldout_loss": 0.5}
    file(tmp_path)
    (tmp_path / "heldout.jsonl").write_text((tmp_path / "train.jsonl").read_text())
    words = ("train.jsonl", "-f", job_file.name, "--heldout", "heldout.jsonl", "--epochs", "2")
    done = await command(sdk, tmp_path, *words, "--id", "by-command", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["completed_steps"] == STEPS
    assert "step 6/6" in done.err
    assert "best version 1, with a loss of 0.5000" in done.err
    (tmp_path / "train.jsonl").write_text('{"messages": [{"role": "bot", "content": "x"}]}\n')
    wrong = await command(sdk, tmp_path, "train.jsonl", "-f", job_file.name)
    assert wrong.code == 2
    assert "train.jsonl:1: messages[0].role: got 'bot'; allowed are system" in wrong.err
    nothing = await command(sdk, tmp_path, "-f", job_file.name)
    assert (nothing.code, "nothing to learn from" in nothing.err) == (2, True)
    alone = await command(sdk, tmp_path, "-f", job_file.name, "train.jsonl", "--best", "0.2")
    assert (alone.code, "--from-job" in alone.err) == (2, True)
    steps = await command(
        sdk, tmp_path, "-f", job_file.name, "train.jsonl", "--set", "training.steps=many"
    )
    assert (steps.code, "training.steps" in steps.err) == (2, True)


async def test_the_command_learns_from_a_jobs_episodes(
    client: Client, sdk: podium.AsyncClient, tmp_path: Path, job_file: Path
) -> None:
    source = await client.create(small_job(2), "episodes")
    await client.succeeded(source.id)
    words = ("-f", job_file.name, "--from-job", source.id)
    done = await command(sdk, tmp_path, *words, "--best", "0.2", "--id", "by-best", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["spec"]["sft"]["rows"] == 5
    open_ = await command(sdk, tmp_path, *words)
    assert (open_.code, "Give best, min_reward or successful" in open_.err) == (2, True)
    share = await command(sdk, tmp_path, *words, "--best", "2")
    assert (share.code, "best: got 2; allowed are numbers above 0 up to 1" in share.err) == (
        2,
        True,
    )
