"""Credentials come by the name of a secret, and from variables where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.core.contract import ParsedYaml, parse_yaml, tracking_violations
from podium.types.v1 import spec_pb2
from podium_tracking.adapters.secrets import Secrets

KEY = "0123456789abcdef0123456789abcdef01234567"


def test_s3_the_tutorials_variables_are_read_where_no_secret_is_named() -> None:
    secrets = Secrets(
        None,
        {
            "WANDB_API_KEY": "a",
            "LANGFUSE_PUBLIC_KEY": "b",
            "LANGFUSE_SECRET_KEY": "c",
            "LANGFUSE_HOST": "http://127.0.0.1:1",
            "OPENPIPE_API_KEY": "d",
            "AWS_SECRET_ACCESS_KEY": "not theirs",
        },
    )
    assert secrets.find("wandb", "") == ({"WANDB_API_KEY": "a"}, "")
    assert secrets.find("openpipe", "") == ({"OPENPIPE_API_KEY": "d"}, "")
    assert secrets.find("langfuse", "")[0] == {
        "LANGFUSE_PUBLIC_KEY": "b",
        "LANGFUSE_SECRET_KEY": "c",
        "LANGFUSE_HOST": "http://127.0.0.1:1",
    }
    assert secrets.find("mlflow", "")[1] == "MLFLOW_TRACKING_URI not in the environment"


def test_a_named_secret_is_a_folder_and_never_the_environment(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "WANDB_API_KEY").write_text("theirs\n")
    (tmp_path / "team" / "LANGFUSE_PUBLIC_KEY").write_bytes(b"\xff\xfe")
    secrets = Secrets(tmp_path, {"WANDB_API_KEY": "ours", "LANGFUSE_SECRET_KEY": "ours"})
    assert secrets.find("wandb", "team") == ({"WANDB_API_KEY": "theirs"}, "")
    missing = "LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY not in secret 'team'"
    assert secrets.find("langfuse", "team") == ({}, missing)
    assert secrets.find("wandb", "other")[1] == "WANDB_API_KEY not in secret 'other'"
    assert "no folder of secrets" in Secrets(None, {}).find("wandb", "team")[1]


@pytest.mark.parametrize(
    "tracking",
    [
        {"wandb": {"secret": KEY}},
        {"wandb": {"tags": ["fine", f"key {KEY}"]}},
        {"wandb": {"notes": "sk-lf-12345678-abcd"}},
        {"openpipe": {"secret": "opk-1234567890abcdef"}},
        {"langfuse": {"secret": "pk-lf-1234567890"}},
    ],
)
def test_what_looks_like_a_key_is_refused_and_not_repeated(tracking: dict[str, object]) -> None:
    spec = spec_pb2.TrackingSpec()
    for name, fields in tracking.items():
        for field, value in fields.items():  # type: ignore[attr-defined]
            target = getattr(spec, name)
            getattr(target, field).extend(value) if isinstance(value, list) else setattr(
                target, field, value
            )
    [found] = tracking_violations(spec, "job.spec.tracking")
    assert found.field.startswith("job.spec.tracking.")
    assert "the name of a secret" in found.description
    assert KEY not in str(found)


def test_names_are_no_keys() -> None:
    spec = spec_pb2.TrackingSpec(
        wandb=spec_pb2.WandbSpec(
            secret="team-mail", project="mail-2026", notes="a task about asks"
        ),
        langfuse=spec_pb2.LangfuseSpec(secret="langfuse"),
    )
    assert tracking_violations(spec, "job.spec.tracking") == []


@pytest.mark.parametrize("secret", ["../etc", "A_B", "a/b", "x" * 64])
def test_a_secrets_name_is_a_label(secret: str) -> None:
    parsed: ParsedYaml[spec_pb2.TrackingSpec] = parse_yaml(
        f"wandb: {{secret: '{secret}'}}", spec_pb2.TrackingSpec
    )
    assert [each.field for each in parsed.violations] == ["wandb.secret"]
