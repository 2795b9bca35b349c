"""The chart states no default of its own: a service's settings are where its defaults stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from chart_golden import render
from podium_controller.settings import Settings as ControllerSettings
from podium_inference.adapters.engine_options import for_device
from podium_inference.settings import Settings as InferenceSettings
from support.chart_pods import pods
from support.defaults import CLIENTS, SERVICES, others_than_its_own

ON_PURPOSE = {
    # Where things are in a cluster; none of it is a choice of anybody's.
    "host": "a pod is called by others",
    "registry_address": "a Service of the chart",
    "rollout_address": "a Service of the chart",
    "judge_address": "a Service of the chart",
    "controller_address": "a Service of the chart",
    "pool_address": "a Service of the chart",
    "pools": "Services of the chart",
    "allowed_hosts": "the console's Service has names",
    "base_url": "the first pool's Service",
    "pod_ip": "the pod's own",
    "database_url": "of a Secret; several replicas share it",
    "secrets_dir": "where the Secrets that jobs may name are mounted",
    "data_dir": "the volume that can be written to",
    "auth_tokens_file": "of a Secret: calls present a token by default",
    "token_file": "of the same Secret",
    "api_keys_file": "of the same Secret",
    "key_file": "the judge asks the installation's own pool, which wants a token",
    "tracking": "the chart knows whether it has that service, and a controller alone does not",
    "tracking_secrets_file": "the Secrets that the values list",
    "trainer_template": "trainers are Jobs of their own",
    "trainer_owner": "they go with the release",
    "environment_template": "environments that are images are Deployments",
    # Choices.
    "log_format": "a cluster's logs are read by programs",
    "drain_seconds": "nobody waits for a pod's end: running calls get what Kubernetes allows a pod",
    "weight_mode": "`auto` decided by the pool's GPUs: the chart counts the jobs that a pool takes",
}


def stated(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """The variables of every container of a service, with its service."""
    for pod in pods(render(values)):
        for container in pod.spec["containers"]:
            if container["name"] in (*SERVICES, *CLIENTS):
                env = {e["name"]: e.get("value", "from-elsewhere") for e in container["env"]}
                yield container["name"], env


@pytest.mark.parametrize("pool", [{"model": "smollm2-135m-instruct"}, {}], ids=["pools", "rest"])
def test_no_default_differs_but_on_purpose(
    pool: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = {"enabled": True}
    values = {"gitops": on, "tracking": on, "pools": [{"name": "default", **pool}]}
    found = {
        (service, name): value
        for service, env in stated(values)
        for name, value in others_than_its_own(service, env, monkeypatch).items()
    }
    assert {service for service, _ in found} == {*SERVICES, *CLIENTS}
    assert {key: value for key, value in found.items() if key[1] not in ON_PURPOSE} == {}
    assert set(ON_PURPOSE) - {name for _, name in found} == set(), "differ no more"


def test_the_first_pool_is_what_the_service_serves_by_itself() -> None:
    (model,) = {e["PODIUM_INFERENCE_MODEL"] for name, e in stated({}) if name == "inference"}
    assert model == InferenceSettings.model_fields["model"].default


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_a_pool_without_a_weight_mode_has_the_one_that_the_service_would_take(gpus: int) -> None:
    service = for_device(InferenceSettings(), cpu=gpus == 0).weight_mode
    assert service == ("adapter" if gpus else "merged")
    values = {"pools": [{"name": "default", "gpus": gpus}], "trainer": {"gpus": gpus}}
    modes = {e["PODIUM_INFERENCE_WEIGHT_MODE"] for name, e in stated(values) if name == "inference"}
    assert modes == {service}


def test_a_pool_of_adapters_takes_as_many_jobs_as_the_controller_lets_share_it() -> None:
    values = {"pools": [{"name": "default", "weightMode": "adapter"}]}
    (controller,) = (env for name, env in stated(values) if name == "controller")
    jobs = controller["PODIUM_CONTROLLER_MAX_ACTIVE_JOBS"]
    assert int(jobs) == ControllerSettings.model_fields["max_jobs_per_pool"].default
