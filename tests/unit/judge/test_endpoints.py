from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.types.v1 import spec_pb2
from podium_judge.adapters.endpoints import resolve_judges
from podium_judge.domain.judge_config import Endpoint
from podium_judge.settings import Settings
from pydantic import SecretStr

OWN = "http://pool:50083/v1"
OTHER = "https://judge.example.com/v1"
ENVIRON = {"PODIUM_JUDGE_KEY_OTHER": "other-key", "HOME": "somewhere"}


def resolve(spec: spec_pb2.RulerSpec | None = None, **settings: Any) -> Endpoint:
    fields: dict[str, Any] = {"base_url": OWN, "model": "pool-model", "key": SecretStr("own-key")}
    fields |= settings
    (judge,), fallbacks = resolve_judges(
        spec or spec_pb2.RulerSpec(), "reward.scorers[0].ruler", Settings(**fields), ENVIRON
    )
    assert fallbacks == []
    return judge.endpoint


def refusal(spec: spec_pb2.RulerSpec, **settings: Any) -> tuple[str, str]:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve(spec, **settings)
    (violation,) = caught.value.violations
    return violation.field.removeprefix("reward.scorers[0].ruler."), violation.description


def test_an_empty_spec_means_the_services_own_judge() -> None:
    assert resolve() == Endpoint(OWN, "pool-model", "own-key")
    assert resolve(spec_pb2.RulerSpec(model="job@3")) == Endpoint(OWN, "job@3", "own-key")
    assert resolve(spec_pb2.RulerSpec(base_url=OWN + "/")) == Endpoint(OWN, "pool-model", "own-key")


@pytest.mark.parametrize("url", ["", "pool:50083/v1", "http://[pool", "http://me:secret@pool/v1"])
def test_the_services_own_address_must_be_one(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        Settings(base_url=url)


def test_a_key_file_is_read_again_and_goes_where_the_key_goes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings: dict[str, Any] = {"key": SecretStr(""), "key_file": file}
    for token in ("first", "second"):
        file.write_text(token + "\n")
        assert resolve(**settings).key == token
    assert resolve(spec_pb2.RulerSpec(base_url=OTHER), **settings).key == ""
    assert resolve(**{**settings, "key": SecretStr("own-key")}).key == "own-key"


@pytest.mark.parametrize("key", ["own-key\n", "own-key\r\n", " own-key "])
def test_a_key_has_no_end_of_its_line(key: str) -> None:
    # As a Secret that was made of a file gives it to a variable.
    assert resolve(key=SecretStr(key)).key == "own-key"
    named = spec_pb2.RulerSpec(api_key_env="PODIUM_JUDGE_KEY_OTHER")
    (judge,), _ = resolve_judges(
        named, "ruler", Settings(base_url=OWN), {"PODIUM_JUDGE_KEY_OTHER": key}
    )
    assert judge.endpoint.key == "own-key"


@pytest.mark.parametrize("key", ["schlüssel", "one\ntwo"])
def test_a_key_that_no_header_carries_is_told_without_it(key: str) -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        resolve(key=SecretStr(key))
    named = spec_pb2.RulerSpec(api_key_env="PODIUM_JUDGE_KEY_OTHER")
    with pytest.raises(InvalidArgumentError, match=r"api_key_env.* the variable has ") as other:
        resolve_judges(named, "ruler", Settings(base_url=OWN), {"PODIUM_JUDGE_KEY_OTHER": key})
    assert key not in f"{caught.value} {other.value}"


def test_another_address_gets_no_key_and_no_model_of_ours() -> None:
    assert resolve(spec_pb2.RulerSpec(base_url=OTHER)) == Endpoint(OTHER, "", "")


def test_a_named_key_goes_to_a_trusted_address_only() -> None:
    spec = spec_pb2.RulerSpec(base_url=OTHER, model="m", api_key_env="PODIUM_JUDGE_KEY_OTHER")
    trusting = {"trusted_base_urls": (OTHER + "/",)}
    assert resolve(spec, **trusting) == Endpoint(OTHER, "m", "other-key")
    field, problem = refusal(spec)
    assert field == "api_key_env"
    assert "PODIUM_JUDGE_TRUSTED_BASE_URLS" in problem


@pytest.mark.parametrize("url", [OTHER + ".evil.example", OTHER.replace("https", "http")])
def test_a_look_alike_of_a_trusted_address_is_not_trusted(url: str) -> None:
    spec = spec_pb2.RulerSpec(base_url=url)
    assert resolve(spec, trusted_base_urls=(OTHER,)).key == ""


def test_a_way_around_in_the_path_is_no_address() -> None:
    field, problem = refusal(spec_pb2.RulerSpec(base_url=OTHER + "/../../v1"))
    assert field == "base_url"
    assert "http(s)://host[:port]" in problem


@pytest.mark.parametrize(
    "variable", ["HOME", "OPENAI_API_KEY", "PODIUM_JUDGE_KE", "podium_judge_key"]
)
def test_no_other_environment_variable_can_be_read(variable: str) -> None:
    field, problem = refusal(spec_pb2.RulerSpec(api_key_env=variable))
    assert field == "api_key_env"
    assert "begin with PODIUM_JUDGE_KEY" in problem


def test_a_key_variable_that_is_not_set() -> None:
    _, problem = refusal(spec_pb2.RulerSpec(api_key_env="PODIUM_JUDGE_KEY_MISSING"))
    assert "no such environment variable" in problem


@pytest.mark.parametrize(
    "url", ["judge:80/v1", "file:///etc/passwd", "ftp://x/v1", "http://", "http://user:pw@x/v1"]
)
def test_an_address_that_is_not_http(url: str) -> None:
    field, _ = refusal(spec_pb2.RulerSpec(base_url=url))
    assert field == "base_url"


def test_keys_do_not_show() -> None:
    assert "own-key" not in repr(resolve())
    assert "own-key" not in repr(Settings(key=SecretStr("own-key")))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_JUDGE_KEY", "k")
    monkeypatch.setenv("PODIUM_JUDGE_KEY_OTHER", "o")
    monkeypatch.setenv("PODIUM_JUDGE_TRUSTED_BASE_URLS", f'["{OTHER}"]')
    settings = Settings()
    assert settings.key.get_secret_value() == "k"
    assert settings.trusted_base_urls == (OTHER,)
    assert (settings.port, settings.health_port, settings.metrics_port) == (50055, 50065, 50075)
