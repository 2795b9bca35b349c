"""Pools as a setting, in both its forms."""

from __future__ import annotations

import pytest
from podium_controller.settings import Settings as ControllerSettings
from podium_rollout.settings import Settings as RolloutSettings
from pydantic import ValidationError


@pytest.mark.parametrize("service", ["controller", "rollout"])
@pytest.mark.parametrize(
    "text", ["b=two:2, a=one:1,", '{"b": "two:2", "a": "one:1"}', ' {"b":"two:2","a":"one:1"}']
)
def test_both_forms_keep_their_order(
    service: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"PODIUM_{service.upper()}_POOLS", text)
    kind = {"controller": ControllerSettings, "rollout": RolloutSettings}[service]
    assert list(kind().pool_addresses().items()) == [("b", "two:2"), ("a", "one:1")]


def test_one_address_is_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CONTROLLER_INFERENCE_ADDRESS", "one:1")
    assert ControllerSettings().pool_addresses() == {"default": "one:1"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one:1", "allowed is NAME=ADDRESS"),
        ("A=one:1", "DNS labels"),
        ("a=", "has no address"),
        ("a=one:1,a=two:2", "stands there twice"),
        ('{"a": "one:1", "a": "two:2"}', "stands there twice"),
        ('{"a": 1}', "has no address"),
        ('{"a": ', "Expecting value"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CONTROLLER_POOLS", text)
    with pytest.raises(ValidationError) as raised:
        ControllerSettings()
    assert told in str(raised.value)
