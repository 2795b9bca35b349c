"""Resources of the installation: machines, GPUs, and objects for others' controllers."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.cluster.jobset import job_name, wrap
from podium_controller.cluster.template import TrainerTemplate
from safetensors.torch import load_file
from support.cluster_jobs import (
    JOB,
    client_of,
    outside,
    podium,
)
from support.custom_resources import defined
from support.kubernetes_cluster import RELEASE, Installation

pytestmark = pytest.mark.timeout(2400)

# Float32, in which the order of additions is all that machines may differ in.
CLIENT_JOB = """
recovery_timeout_seconds: 1800
base_model: smollm2-135m-instruct
client: {{}}
training:
  steps: 1
  learning_rate: 2.0e-4
  dtype: float32
  lora: {{rank: 8}}
trainer: {{nodes: {nodes}}}
"""


@dataclass(frozen=True)
class Trained:
    """What became of a step over the same trajectories, on so many machines each."""

    adapters: list[dict[str, torch.Tensor]]
    trainer: dict[str, Any]
    """A pod that took it."""


@pytest.fixture(scope="module")
def trained(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    with outside(installation) as environment:
        return asyncio.run(
            trained_on(installation, environment, (1, 2), tmp_path_factory.mktemp("adapters"))
        )


def test_two_machines_take_the_step_of_one(trained: Trained) -> None:
    one, two = trained.adapters
    assert one.keys() == two.keys()
    # B of a new adapter is 0, so what it holds is the step.
    moved = math.sqrt(sum(float(one[name].square().sum()) for name in one if "lora_B" in name))
    apart = math.sqrt(sum(float((one[name] - two[name]).square().sum()) for name in one))
    assert moved > 0
    # As much as Adam makes of rounding: tests/integration/test_trainer_ranks.py.
    assert apart <= 1e-4 * moved


def test_trainer_and_inference_take_a_gpu_each(
    installation: Installation, gpus: bool, trained: Trained
) -> None:
    """As the upgrade of test_e2e_training.py has told them to."""
    if not gpus:
        pytest.skip("no node has a GPU")
    engine = described(installation, installation.cluster.pod_of("inference-default"))
    for pod, container in ((trained.trainer, "trainer"), (engine, "inference")):
        spec = pod["spec"]
        (limits,) = (c["resources"]["limits"] for c in spec["containers"] if c["name"] == container)
        assert limits["nvidia.com/gpu"] == "1", pod["metadata"]["name"]
        assert spec["nodeName"], pod["metadata"]["name"]


def described(installation: Installation, pod: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(installation.cluster.kubectl("get", pod, "-o", "json"))
    return found


async def trained_on(
    installation: Installation,
    environment: Mapping[str, str],
    machines: Sequence[int],
    folder: Path,
) -> Trained:
    adapters, trainer = [], {}
    async with client_of(environment) as client:
        stored = [each async for each in client.jobs.trajectories("first", step=1)]
        for nodes in machines:
            job_id = f"nodes-{nodes}"
            text = CLIENT_JOB.format(nodes=nodes)
            podium(dict(environment), "job", "submit", "-f", "-", "--id", job_id, text_in=text)
            await client.sessions.submit(job_id, groups_of(stored, job_id), request_id=job_id)
            await client.sessions.finish(job_id)
            trainer = described(installation, installation.cluster.trainer_of(job_id))
            podium(dict(environment), "job", "watch", job_id)
            podium(dict(environment), "checkpoint", "export", f"{job_id}@1", str(folder / job_id))
            adapters.append(load_file(folder / job_id / "adapter_model.safetensors"))
    return Trained(adapters, trainer)


def groups_of(
    stored: Sequence[trajectory_pb2.Trajectory], job_id: str
) -> list[trajectory_pb2.Group]:
    """The groups of stored trajectories, as sampled from the start of another job."""
    groups: dict[str, trajectory_pb2.Group] = {}
    for number, trajectory in enumerate(stored):
        group = groups.setdefault(
            trajectory.group_id, trajectory_pb2.Group(id=f"group-{len(groups)}")
        )
        group.scenario.id = trajectory.scenario_id
        copy = group.trajectories.add()
        copy.CopyFrom(trajectory)
        # Rewards of an untrained model may all be equal, and teach nothing.
        copy.environment_reward = float(number % 3)
        for history in copy.histories:
            for span in history.tokens.spans:
                span.policy, span.weights_version = job_id, 0
    return list(groups.values())


def test_objects_for_others_controllers_are_stored_as_they_are_written(
    installation: Installation, tmp_path: Path
) -> None:
    """KEDA's, LeaderWorkerSet's and JobSet's: here nothing acts on them."""
    cluster, kinds = installation.cluster, ("ScaledObject", "LeaderWorkerSet", "JobSet")
    scaling = "autoscaling.enabled=true,autoscaling.prometheusAddress=http://prometheus:9090"
    pools = ",".join(
        f"pools[{index}].{value}"
        for index, values in enumerate(
            (f"name=scaled,{scaling}", "name=spread,nodes=2,pipelineParallel=2")
        )
        for value in values.split(",")
    )
    api = ("--api-versions", "leaderworkerset.x-k8s.io/v1")
    text = cluster.helm("template", RELEASE, str(installation.chart), *api, "--set", pools)
    objects = [each for each in yaml.safe_load_all(text) if each and each["kind"] in kinds]
    trainers = json.loads(cluster.kubectl("get", "configmap", f"{RELEASE}-trainer", "-o", "json"))
    template = TrainerTemplate(yaml.safe_load(trainers["data"]["default.yaml"]), "nvidia.com/gpu")
    wishes = spec_pb2.TrainerSpec(nodes=2, gpus_per_node=1, queue="research")
    name = template.name("stored")
    objects.append(wrap(template.job("stored", wishes, name=job_name(name)), name))
    assert sorted(each["kind"] for each in objects) == sorted(kinds)
    with defined(cluster, *kinds):
        for each in objects:
            each["metadata"].pop("namespace", None)
            text = yaml.safe_dump(each)
            cluster.kubectl("apply", "--server-side", "-f", "-", text_in=text)
            assert cluster.stored(each)["spec"] == each["spec"]


def test_a_job_too_large_says_what_the_scheduler_says(installation: Installation) -> None:
    with outside(installation) as client:
        text = JOB.format(steps=1) + "trainer: {gpus_per_node: 8}\n"
        podium(client, "job", "submit", "-f", "-", "--id", "large", text_in=text)
        end = time.monotonic() + 120
        while "nvidia.com/gpu" not in (shown := podium(client, "job", "get", "large")):
            assert time.monotonic() < end, shown
            time.sleep(1)
        assert "TRAINER_UNSCHEDULABLE" in shown
        # Its lines are broken, where there are other reasons too.
        assert "Insufficient nvidia.com/gpu" in " ".join(shown.split())
        podium(client, "job", "cancel", "large")
    installation.cluster.gone("jobs,pods", "podium.dev/job=large")
