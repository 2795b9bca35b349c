"""From the installation's template and a job's wishes to the objects of its trainer."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from podium.core.errors import InvalidArgumentError
from podium.kit.kubernetes.object_template import Manifest, object_name
from podium.types.v1 import spec_pb2
from podium_controller.cluster.jobset import job_name
from podium_controller.cluster.quantity import times
from podium_controller.cluster.template import TrainerTemplate

GPU = "nvidia.com/gpu"
TEMPLATE: Manifest = yaml.safe_load("""
apiVersion: batch/v1
kind: Job
metadata:
  name: podium-trainer
  labels:
    app.kubernetes.io/name: podium
    app.kubernetes.io/instance: blue
    app.kubernetes.io/component: trainer
    app.kubernetes.io/version: "1"
spec:
  backoffLimit: 3
  template:
    metadata:
      labels: {team: a}
    spec:
      initContainers: [{name: models, image: models}]
      containers:
        - name: proxy
          image: proxy
        - name: trainer
          image: podium/trainer:1
          args: [--verbose]
          env: [{name: A, value: "1"}, {name: PET_NNODES, value: "9"}]
          ports: [{name: grpc, containerPort: 50056}]
          resources:
            requests: {cpu: "1", nvidia.com/gpu: 2}
            limits: {memory: 8Gi, nvidia.com/gpu: 2}
          readinessProbe: {grpc: {port: 50066}}
""")


def made(job_id: str = "job", template: Manifest = TEMPLATE, **wishes: Any) -> Manifest:
    return TrainerTemplate(template, GPU).job(job_id, spec_pb2.TrainerSpec(**wishes))


def trainer(job: Manifest) -> Manifest:
    container: Manifest = job["spec"]["template"]["spec"]["containers"][1]
    return container


def variables(job: Manifest) -> dict[str, Any]:
    env = trainer(job)["env"]
    assert len({each["name"] for each in env}) == len(env)
    return {each["name"]: each.get("value") for each in env}


job_ids = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(job_ids, job_ids)
def test_names_fit_with_every_index_and_differ_by_job(one: str, other: str) -> None:
    names = [object_name("podium-trainer", job_id) for job_id in (one, other)]
    for name in names:
        # What JobSet's webhook holds against the 63 characters of a pod's name.
        assert len(f"{job_name(name)}-1023-abcde") <= 63
        assert name[0].isalpha()
        assert name[-1].isalnum()
    assert (names[0] == names[1]) == (one == other)
    assert names[0] == object_name("podium-trainer", one)


def test_a_short_name_can_be_read() -> None:
    assert object_name("podium-trainer", "email-search-k3v9q2") == (
        "podium-trainer-email-search-k3v9q2"
    )


def test_the_template_is_not_touched() -> None:
    before = copy.deepcopy(TEMPLATE)
    made(nodes=4, gpus_per_node=8, queue="q", priority_class="high")
    assert before == TEMPLATE


def test_a_plain_trainer_is_as_the_template_has_it() -> None:
    template = copy.deepcopy(TEMPLATE)
    resources = template["spec"]["template"]["spec"]["containers"][1]["resources"]
    del resources["limits"][GPU], resources["requests"][GPU]
    job = made(template=template, nodes=1)
    assert job["metadata"]["name"] == "podium-trainer-job"
    assert job["metadata"]["labels"]["podium.dev/job"] == "job"
    assert "ownerReferences" not in job["metadata"]
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (1, 1, "Indexed")
    assert spec["backoffLimit"] == 3
    assert "suspend" not in spec
    assert "command" not in trainer(job)
    assert trainer(job)["args"] == ["--verbose"]
    assert variables(job) == {"A": "1", "PET_NNODES": "9"}
    pod = spec["template"]
    assert pod["metadata"]["labels"] == {
        "team": "a",
        "app.kubernetes.io/name": "podium",
        "app.kubernetes.io/instance": "blue",
        "app.kubernetes.io/component": "trainer",
        "podium.dev/job": "job",
        "podium.dev/project": "default",
    }
    assert pod["spec"]["restartPolicy"] == "Never"
    assert "subdomain" not in pod["spec"]
    assert trainer(job)["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_a_trainer_is_labelled_with_its_project_by_which_nothing_is_selected() -> None:
    template = TrainerTemplate(TEMPLATE, GPU)
    job = template.job("job", spec_pb2.TrainerSpec(), project="research")
    for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
        assert labels["podium.dev/project"] == "research"
    assert "podium.dev/project" not in template.selector
    service = template.service("job", {**job, "metadata": {**job["metadata"], "uid": "1"}})
    assert "podium.dev/project" not in service["spec"]["selector"]


@pytest.mark.parametrize(
    ("wishes", "gpus"),
    [({}, 2), ({"nodes": 3}, 6), ({"gpus_per_node": 8}, 8), ({"nodes": 4, "gpus_per_node": 8}, 32)],
)
def test_a_trainers_gpus_are_those_of_all_its_nodes(wishes: dict[str, int], gpus: int) -> None:
    spec = spec_pb2.TrainerSpec(**wishes)
    assert TrainerTemplate(TEMPLATE, GPU).gpus(spec) == gpus
    assert TrainerTemplate(TEMPLATE, "amd.com/gpu").gpus(spec) == (
        gpus if "gpus_per_node" in wishes else 0
    )


def test_the_templates_gpus_are_the_processes() -> None:
    job = made(nodes=1)
    assert trainer(job)["command"] == ["torchrun", "-m", "podium_trainer"]
    assert "args" not in trainer(job)
    assert variables(job)["PET_NPROC_PER_NODE"] == "2"
    assert "PET_MASTER_ADDR" not in variables(job)


def test_several_nodes_meet_at_the_first_ones_name() -> None:
    job = made("j", nodes=4, gpus_per_node=8)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (4, 4, 12)
    assert trainer(job)["resources"] == {
        "requests": {"cpu": "4"},
        "limits": {"memory": "32Gi", GPU: 8},
    }
    found = variables(job)
    assert found["PET_NNODES"] == "4"
    assert found["PET_NPROC_PER_NODE"] == "8"
    assert found["PET_MASTER_ADDR"] == "podium-trainer-j-0.podium-trainer-j"
    rank = next(each for each in trainer(job)["env"] if each["name"] == "PET_NODE_RANK")
    assert "job-completion-index" in rank["valueFrom"]["fieldRef"]["fieldPath"]
    assert spec["template"]["spec"]["subdomain"] == "podium-trainer-j"
    template = TrainerTemplate(TEMPLATE, GPU)
    job["metadata"]["uid"] = "uid-1"
    service = template.service("j", job)
    assert service["metadata"]["name"] == "podium-trainer-j"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "podium-trainer-j", "uid": "uid-1"}
    ]
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_a_queue_and_a_priority() -> None:
    job = made(queue="team-a", priority_class="high")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert job["spec"]["suspend"] is True
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "high"


def test_disruptions_are_not_counted_and_bad_settings_end_it() -> None:
    ignore, fail = made()["spec"]["podFailurePolicy"]["rules"]
    assert ignore["action"] == "Ignore"
    assert ignore["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert fail["action"] == "FailJob"
    assert fail["onExitCodes"]["values"] == [2]


def test_an_owner_takes_it_along() -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "podium-controller", "uid": "uid-9", "labels": {}},
    }
    job = TrainerTemplate(TEMPLATE, GPU).job("j", spec_pb2.TrainerSpec(), owner)
    assert job["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "podium-controller",
            "uid": "uid-9",
        }
    ]


def test_only_this_installations_object_of_this_job_is_ours() -> None:
    template = TrainerTemplate(TEMPLATE, GPU)
    job = made("j")
    assert template.is_ours(job, "j")
    assert not template.is_ours(job, "k")
    job["metadata"]["labels"]["app.kubernetes.io/instance"] = "green"
    assert not template.is_ours(job, "j")
    assert not template.is_ours({"metadata": {}}, "j")


def changed(path: str, value: Any) -> Manifest:
    job = copy.deepcopy(TEMPLATE)
    *way, last = path.split("/")
    at: Any = job
    for step in way:
        at = at[int(step) if step.isdecimal() else step]
    at[last] = value
    return job


_TRAINER = "spec/template/spec/containers/1"


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ([], "trainer_template"),
        (changed("kind", "CronJob"), "trainer_template"),
        (changed("metadata/name", ""), "trainer_template.metadata.name"),
        (changed("metadata/labels", None), "trainer_template.metadata.labels"),
        (
            changed(f"{_TRAINER}/name", "optimizer"),
            "trainer_template.spec.template.spec.containers",
        ),
        (
            changed(f"{_TRAINER}/ports", []),
            "trainer_template.spec.template.spec.containers[trainer].ports",
        ),
        (
            changed(f"{_TRAINER}/livenessProbe", {"grpc": {"port": 1}}),
            "trainer_template.spec.template.spec.containers[trainer].livenessProbe",
        ),
    ],
)
def test_a_template_that_cannot_work_is_refused_by_field(job: Any, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        TrainerTemplate(job, GPU)
    assert [each.field for each in raised.value.violations] == [field]


@pytest.mark.parametrize("content", [None, "a: ["])
def test_a_file_that_is_not_there_or_no_yaml(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "trainer.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"trainer\.yaml"):
        TrainerTemplate.load(path, GPU)


def of_pools(*pools: str) -> TrainerTemplate:
    """A template of a Job for each pool, told apart by their init containers' images."""
    jobs = {}
    for pool in pools:
        init = {"name": "model", "image": f"fetch-{pool}"}
        jobs[pool] = changed("spec/template/spec/initContainers", [init])
    return TrainerTemplate(jobs[pools[0]], GPU, jobs)


def fetched(job: Manifest) -> list[str]:
    return [each["image"] for each in job["spec"]["template"]["spec"]["initContainers"]]


def test_a_trainer_is_made_of_its_own_pools_job() -> None:
    template = of_pools("small", "large")
    for pool in ("large", "small"):
        job = template.job("j", spec_pb2.TrainerSpec(), pool=pool)
        assert fetched(job) == [f"fetch-{pool}"]
        assert job["metadata"]["name"] == "podium-trainer-j"


def test_a_pool_without_a_job_is_named_with_those_that_have_one() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'gone'; allowed is one of small, large"):
        of_pools("small", "large").job("j", spec_pb2.TrainerSpec(), pool="gone")


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("metadata/name", "other", "metadata"),
        ("spec/backoffLimit", 9, "backoffLimit"),
        (f"{_TRAINER}/ports", [{"name": "grpc", "containerPort": 1}], "ports"),
        (f"{_TRAINER}/resources/limits", {"memory": "8Gi", GPU: 3}, GPU),
    ],
)
def test_what_pools_must_have_alike(path: str, value: Any, what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"b.yaml: differs .* {what}"):
        TrainerTemplate(TEMPLATE, GPU, {"a": TEMPLATE, "b": changed(path, value)})


def test_a_folder_has_a_file_for_each_pool(tmp_path: Path) -> None:
    for pool in ("small", "large"):
        init = {"name": "model", "image": f"fetch-{pool}"}
        job = changed("spec/template/spec/initContainers", [init])
        (tmp_path / f"{pool}.yaml").write_text(yaml.safe_dump(job))
    template = TrainerTemplate.of_pools(tmp_path, GPU, ["small", "large"])
    assert fetched(template.job("j", spec_pb2.TrainerSpec(), pool="large")) == ["fetch-large"]
    with pytest.raises(InvalidArgumentError, match=r"third\.yaml"):
        TrainerTemplate.of_pools(tmp_path, GPU, ["small", "third"])
    one = TrainerTemplate.of_pools(tmp_path / "small.yaml", GPU, ["small", "large"])
    assert fetched(one.job("j", spec_pb2.TrainerSpec(), pool="large")) == ["fetch-small"]


@pytest.mark.parametrize(
    ("gpus", "cpu", "memory"),
    # The template's are for two GPUs.
    [(1, "1", "8Gi"), (2, "1", "8Gi"), (3, "2", "16Gi"), (8, "4", "32Gi")],
)
def test_memory_and_cpus_follow_the_gpus(gpus: int, cpu: str, memory: str) -> None:
    resources = trainer(made(gpus_per_node=gpus))["resources"]
    assert resources == {"requests": {"cpu": cpu}, "limits": {"memory": memory, GPU: gpus}}


@pytest.mark.parametrize(
    ("quantity", "factor", "wanted"),
    [
        ("8Gi", 4, "32Gi"),
        ("500m", 3, "1500m"),
        (1, 8, "8"),
        (0.5, 3, "1.5"),
        ("1.5Gi", 2, "3Gi"),
        ("1e9", 2, "2e9"),
        ("0.0001", 1, "0.001"),
    ],
)
def test_a_quantity_keeps_its_unit(quantity: str | float, factor: int, wanted: str) -> None:
    assert times(quantity, factor) == wanted


@pytest.mark.parametrize("quantity", ["", "lots", "8 Gi", "8GB", "-1"])
def test_no_quantity_is_refused_before_any_job_comes(quantity: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        TrainerTemplate(changed(f"{_TRAINER}/resources/limits/memory", quantity), GPU)
    (found,) = raised.value.violations
    assert found.field.endswith("containers[trainer].resources.limits.memory")
