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


@pytest.mark.parametrize(
    "text",
    [
        "b=two:2, a=one:1,",
        '{"b": "two:2", "a": {"address": "one:1"}}',
    ],
)
def test_trainer_pools_keep_their_order(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CONTROLLER_TRAINER_POOLS", text)
    found = ControllerSettings().trainer_pools
    assert [(name, each.address) for name, each in found.items()] == [
        ("b", "two:2"),
        ("a", "one:1"),
    ]


def test_a_trainer_pool_says_whose_jobs_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = (
        '{"a": {"address": " one:1", "base_model": "m", "max_jobs": 4, "gpus": 2,'
        ' "scales_to_zero": true}, "b": "two:2"}'
    )
    monkeypatch.setenv("PODIUM_CONTROLLER_TRAINER_POOLS", pool)
    first, second = ControllerSettings().trainer_pools.values()
    assert (first.address, first.base_model, first.max_jobs, first.gpus) == ("one:1", "m", 4, 2)
    assert (second.base_model, second.max_jobs, second.gpus) == ("", 0, 0)
    assert (first.scales_to_zero, second.scales_to_zero) == (True, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one:1", "allowed is NAME=ADDRESS"),
        ("a=", "has no address"),
        ('{"a": {}}', "has no address"),
        ('{"a": []}', "has no address"),
        ('{"a": [1]}', "allowed is an object"),
        ('{"a": null}', "has no address"),
        ('{"a": {"address": 1}}', "has no address"),
        ('{"a": "one:1", "a": "two:2"}', "stands there twice"),
        ('{"a": {"address": "one:1", "jobs": 2}}', "the trainer pool 'a', jobs: got 2"),
        ('{"a": {"address": "one:1", "max_jobs": -1}}', "max_jobs: got -1"),
        ('{"a": {"address": "one:1", "max_jobs": "many"}}', "max_jobs: got 'many'"),
        ('{"a": {"address": "one:1", "gpus": 1.5}}', "gpus: got 1.5"),
        ('{"a": {"address": "one:1", "scales_to_zero": "no"}}', "scales_to_zero: got 'no'"),
    ],
)
def test_what_is_wrong_with_a_trainer_pool_is_told(
    text: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CONTROLLER_TRAINER_POOLS", text)
    with pytest.raises(ValidationError) as raised:
        ControllerSettings()
    assert told in str(raised.value)


def test_no_trainer_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CONTROLLER_TRAINER_ADDRESS", "")
    with pytest.raises(ValidationError, match="allowed with trainer_pools"):
        ControllerSettings()
    monkeypatch.setenv("PODIUM_CONTROLLER_TRAINER_POOLS", "a=one:1")
    assert ControllerSettings().trainer_address == ""
