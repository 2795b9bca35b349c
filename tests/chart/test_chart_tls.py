"""With a certificate every service calls and is called by mutual TLS."""

from __future__ import annotations

from chart_golden import render
from support.chart_pods import pods

FILES = {
    "CERTIFICATE_FILE": "/etc/podium/tls/tls.crt",
    "KEY_FILE": "/etc/podium/tls/tls.key",
    "AUTHORITIES_FILE": "/etc/podium/tls/ca.crt",
}


def test_every_service_and_the_test_have_the_certificate() -> None:
    on = {"enabled": True}
    objects = render({"tls": {"existingSecret": "mine"}, "gitops": on, "tracking": on})
    seen = set()
    for pod in pods(objects):
        if pod.component in ("postgresql", "environment"):
            continue
        (container,) = pod.spec["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        prefix = "PODIUM_" if pod.component == "test" else f"PODIUM_{container['name'].upper()}_"
        assert {name: env[f"{prefix}TLS_{name}"] for name in FILES} == FILES
        volumes = {each["name"]: each for each in pod.spec["volumes"]}
        assert volumes["tls"]["secret"]["secretName"] == "mine"
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        assert mounts["tls"] == {"name": "tls", "mountPath": "/etc/podium/tls", "readOnly": True}
        seen.add(pod.component)
    assert len(seen) == 10


def test_a_trainer_is_known_by_its_name_as_its_pod_has_no_other() -> None:
    objects = render({"tls": {"existingSecret": "mine"}}, name="blue")
    (controller,) = (pod for pod in pods(objects) if pod.component == "controller")
    env = {each["name"]: each.get("value") for each in controller.spec["containers"][0]["env"]}
    assert env["PODIUM_CONTROLLER_TRAINER_SERVER_NAME"] == "blue-podium-trainer"


def test_without_it_nothing_speaks_of_tls() -> None:
    assert "TLS_" not in str(render())
