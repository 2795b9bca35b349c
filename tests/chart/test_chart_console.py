"""The console of the chart: no token of its own, and a door that opens as the API's does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from chart_golden import render
from podium_console.adapters.methods import METHODS
from podium_console.settings import Settings
from support.chart_pods import Pod, edges, of_kind, pods

INGRESS = {"enabled": True, "host": "podium.example", "tlsSecret": "cert"}


def console(values: Mapping[str, Any]) -> Pod:
    (found,) = (pod for pod in pods(render(values)) if pod.component == "console")
    return found


def settings(values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the pod's variables come to, but for files that are not here."""
    with monkeypatch.context() as patched:
        for each in console(values).spec["containers"][0]["env"]:
            patched.setenv(each["name"], each["value"])
        return Settings()


def test_it_has_no_token_of_its_own_and_cannot_read_one() -> None:
    for values in ({}, {"tls": {"existingSecret": "mine"}}):
        pod = console(values)
        (container,) = pod.spec["containers"]
        assert "TOKEN" not in str(container["env"])
        assert "auth" not in {each["name"] for each in pod.spec["volumes"]}
        assert "auth" not in {each["name"] for each in container["volumeMounts"]}
        assert pod.spec["automountServiceAccountToken"] is False


def test_it_is_called_by_the_names_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = settings({}, monkeypatch)
    names = {"localhost", "127.0.0.1", "podium-console", "podium-console.podium.svc"}
    assert names < plain.hosts
    assert plain.public_https is False
    outside = settings({"console": {"ingress": INGRESS, "allowedHosts": ["other"]}}, monkeypatch)
    assert {"podium.example", "other"} < outside.hosts
    assert outside.public_https is True


def test_its_certificate_lets_nobody_in_who_has_neither_token_nor_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls = {"tls": {"existingSecret": "mine"}}
    assert settings(tls, monkeypatch).client_certificates is False
    assert settings({**tls, "auth": {"enabled": False}}, monkeypatch).client_certificates is True


def test_an_ingress_is_refused_where_nobody_is_asked_for_a_token() -> None:
    (ingress,) = of_kind(render({"console": {"ingress": INGRESS}}), "Ingress")
    assert ingress["spec"]["tls"] == [{"hosts": ["podium.example"], "secretName": "cert"}]
    with pytest.raises(Exception, match=r"console\.ingress\.enabled needs auth\.enabled"):
        render({"auth": {"enabled": False}, "console": {"ingress": INGRESS}})
    with pytest.raises(Exception, match=r"console\.ingress\.host"):
        render({"console": {"ingress": {"enabled": True}}})


def test_calls_of_the_api_get_through_policies_and_the_ingress() -> None:
    objects = render({"console": {"ingress": INGRESS}})
    reached = {target for source, target, _ in edges(objects) if source == "console"}
    assert {method.peer for method in METHODS.values()} <= reached
    (ingress,) = of_kind(objects, "Ingress")
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/", "Prefix")


def test_without_it_nothing_of_it_is_there() -> None:
    objects = render({"console": {"enabled": False}})
    assert not [o for o in objects if o["metadata"]["name"].endswith("-console")]
    assert not [edge for edge in edges(objects) if "console" in edge]


def test_the_ingress_may_be_for_all_names_of_a_domain() -> None:
    ingress = {"enabled": True, "host": "*.podium.example", "tlsSecret": "cert"}
    values = {"console": {"ingress": ingress, "allowedHosts": ["a.podium.example"]}}
    (made,) = of_kind(render(values), "Ingress")
    assert made["spec"]["rules"][0]["host"] == "*.podium.example"
    assert made["spec"]["tls"][0]["hosts"] == ["*.podium.example"]
