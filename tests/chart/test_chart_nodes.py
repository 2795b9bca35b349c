"""Pools over several nodes: what the chart makes of them, and what it refuses."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from chart_golden import render
from helm_python import HelmError
from support.chart_pods import group_pods, of_kind, pods, reaches, selects

POOL = {"name": "a", "nodes": 2, "gpus": 4, "replicas": 2}


def leader_worker_set(**more: Any) -> dict[str, Any]:
    (found,) = of_kind(render({"pools": [{**POOL, **more}]}), "LeaderWorkerSet")
    return found


def env_of(template: dict[str, Any]) -> dict[str, str]:
    (container,) = template["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


def test_a_pool_over_several_nodes_is_groups_of_pods() -> None:
    objects = render({"pools": [POOL, {"name": "b"}]})
    assert [s["metadata"]["name"] for s in of_kind(objects, "StatefulSet")] == [
        "podium-inference-b",
        "podium-postgresql",
    ]
    (item,) = of_kind(objects, "LeaderWorkerSet")
    group = item["spec"]["leaderWorkerTemplate"]
    assert (item["spec"]["replicas"], group["size"]) == (2, 2)
    assert group["restartPolicy"] == "RecreateGroupOnPodRestart"
    for kind in ("leaderTemplate", "workerTemplate"):
        pod = {"apiVersion": "v1", "kind": "Pod", **group[kind]}
        pod["metadata"] = {**pod["metadata"], "name": "one"}
        kubernetes_validate.validate(pod, "1.29", strict=True)
        env = env_of(group[kind])
        assert env["PODIUM_INFERENCE_NODES"] == "$(LWS_GROUP_SIZE)"
        assert env["PODIUM_INFERENCE_NODE_RANK"] == "$(LWS_WORKER_INDEX)"
        assert env["PODIUM_INFERENCE_LEADER_ADDRESS"] == "$(LWS_LEADER_ADDRESS)"
        assert env["PODIUM_INFERENCE_TENSOR_PARALLEL_SIZE"] == "8"
        (container,) = group[kind]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
        volumes = {volume["name"]: volume for volume in group[kind]["spec"]["volumes"]}
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"


def test_only_leaders_are_called_and_have_the_key_of_the_api() -> None:
    objects = render({"pools": [POOL]})
    (item,) = of_kind(objects, "LeaderWorkerSet")
    leader, worker = group_pods(item, 1)
    (service,) = (
        s for s in of_kind(objects, "Service") if s["metadata"]["name"] == "podium-inference-a"
    )
    selector = {"matchLabels": service["spec"]["selector"]}
    assert selects(selector, leader.labels)
    assert not selects(selector, worker.labels)
    # LeaderWorkerSet makes a Service of its own name, which must not be this one.
    assert item["metadata"]["name"] not in {
        s["metadata"]["name"] for s in of_kind(objects, "Service")
    }
    names = {variable["name"] for variable in worker.spec["containers"][0]["env"]}
    assert not names & {
        "VLLM_API_KEY",
        "PODIUM_INFERENCE_POOL_ADDRESS",
        "PODIUM_INFERENCE_REGISTRY_ADDRESS",
    }


def test_the_pods_of_a_group_reach_each_other_and_nobody_else_does() -> None:
    objects = render({"pools": [POOL, {**POOL, "name": "b"}]})
    first, second = of_kind(objects, "LeaderWorkerSet")
    port = 45678
    leader, worker = group_pods(first, 0)
    assert reaches(objects, leader, worker, port)
    assert reaches(objects, worker, leader, port)
    inside = {leader.labels["app.kubernetes.io/component"], "nodes-a"}
    others = [pod for pod in pods(objects) if pod.component not in inside]
    for stranger in [*group_pods(first, 1), *group_pods(second, 0), *others]:
        for member in (leader, worker):
            assert not reaches(objects, stranger, member, port), stranger.name
            assert not reaches(objects, member, stranger, port), stranger.name
        assert not reaches(objects, stranger, worker, 50053)
    assert len([o for o in of_kind(objects, "NetworkPolicy") if "-nodes-" in str(o)]) >= 4


def test_a_scaled_pool_has_policies_for_as_many_groups_as_it_may_have() -> None:
    scaling = {"enabled": True, "maxReplicas": 3, "prometheusAddress": "http://prometheus:9090"}
    objects = render({"pools": [{**POOL, "autoscaling": scaling}]})
    (item,) = of_kind(objects, "LeaderWorkerSet")
    assert "replicas" not in item["spec"]
    (scaler,) = of_kind(objects, "ScaledObject")
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": item["metadata"]["name"],
    }
    leader, worker = group_pods(item, 2)
    assert reaches(objects, leader, worker, 45678)


def test_a_budget_counts_all_pods_of_the_groups() -> None:
    objects = render({"pools": [POOL]})
    (budget,) = of_kind(objects, "PodDisruptionBudget")
    (item,) = of_kind(objects, "LeaderWorkerSet")
    assert budget["spec"]["maxUnavailable"] == 1
    for pod in (*group_pods(item, 0), *group_pods(item, 1)):
        assert selects(budget["spec"]["selector"], pod.labels)
    assert of_kind(render({"pools": [{**POOL, "replicas": 1}]}), "PodDisruptionBudget") == []


@pytest.mark.parametrize(
    ("split", "tensor", "pipeline"),
    [
        ({}, "8", "1"),
        ({"pipelineParallel": 2}, "4", "2"),
        ({"tensorParallel": 2, "pipelineParallel": 4}, "2", "4"),
        ({"gpus": 0}, "2", "1"),
    ],
)
def test_the_model_is_split_over_all_gpus(
    split: dict[str, int], tensor: str, pipeline: str
) -> None:
    env = env_of(leader_worker_set(**split)["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    assert env["PODIUM_INFERENCE_TENSOR_PARALLEL_SIZE"] == tensor
    assert env["PODIUM_INFERENCE_PIPELINE_PARALLEL_SIZE"] == pipeline


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (
            {"tensorParallel": 4},
            "'a' has tensorParallel 4 times pipelineParallel 1, which is 4 GPUs;"
            " nodes 2 with gpus 4 each has 8",
        ),
        ({"tensorParallel": 4, "pipelineParallel": 4}, "which is 16 GPUs"),
        ({"pipelineParallel": 3}, "pipelineParallel 3, which does not divide its GPUs"),
        ({"nodes": 1, "tensorParallel": 8}, "nodes 1 with gpus 4 each has 4"),
        ({"nodes": 0}, "nodes"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(split: dict[str, int], words: str) -> None:
    with pytest.raises(HelmError) as refused:
        render({"pools": [{**POOL, **split}]})
    assert words in str(refused.value)


def test_a_cluster_without_leader_worker_sets_is_told_what_is_missing() -> None:
    with pytest.raises(HelmError) as refused:
        render({"pools": [POOL]}, api_versions=())
    assert "pools: 'a' has nodes 2" in str(refused.value)
    assert "no leaderworkerset.x-k8s.io/v1" in str(refused.value)
    # Nobody else needs them.
    assert of_kind(render({"pools": [{"name": "a"}]}, api_versions=()), "LeaderWorkerSet") == []


@pytest.mark.parametrize("other", ["a-0", "a-11"])
def test_a_pool_with_the_name_of_a_group_is_refused(other: str) -> None:
    """A LeaderWorkerSet calls its groups' StatefulSets so."""
    with pytest.raises(HelmError) as refused:
        render({"pools": [{"name": other}, POOL]})
    assert f"the name '{other}' is that of a group of nodes of the pool 'a'" in str(refused.value)
    render({"pools": [{"name": other}, {"name": "a"}]})
    render({"pools": [{"name": f"{other}-b"}, POOL]})
