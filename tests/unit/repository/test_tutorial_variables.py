"""S2 and S3: what docs/reference/tutorial_rows.md says of variables and of families is so."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import click
import pytest
import yaml
from podium.cli.stack import up
from podium.kit.rpc import load_settings
from podium_rollout.settings import Settings
from support.cli import invoke
from support.fake_judge import completion, fake_judge

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs/reference/tutorial_rows.md").read_text()
TUTORIALS = {
    "OPENAI_API_KEY",
    "OPENPIPE_API_KEY",
    "WANDB_API_KEY",
    "LANGFUSE_PUBLIC_KEY",
    "LANGFUSE_SECRET_KEY",
    "LANGFUSE_HOST",
    "ART_SERVER_PORT",
    "ART_CLIENT_WORKERS",
}


def told() -> dict[str, str]:
    """What the table of the document says of each variable."""
    return dict(re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", DOCUMENT, re.MULTILINE))


@functools.cache
def texts(folder: str) -> dict[Path, str]:
    """The code, charts and images below a folder."""
    return {
        path: path.read_text(errors="ignore")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".tpl", ""} and path.is_file()
    }


def read_in(folder: str, name: str) -> list[Path]:
    """The files of the product that name a variable: code, chart, images."""
    # A name of a setting of ours may end as one of theirs.
    whole = re.compile(rf"(?<![A-Z_]){name}(?![A-Z_])")
    return [path for path, text in texts(folder).items() if name in text and whole.search(text)]


def test_every_variable_of_the_tutorial_is_in_the_table() -> None:
    assert told().keys() == TUTORIALS
    assert all(text.startswith("read: ") for text in told().values())


async def test_s3_the_variables_that_are_read_have_their_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the tracking service reads, tests/unit/tracking/test_secrets_by_name.py shows.
    monkeypatch.setenv("ART_SERVER_PORT", "8000")
    assert up.make_context("up", []).params["port_base"] == 8000
    assert up.make_context("up", ["--port-base", "9000"]).params["port_base"] == 9000
    monkeypatch.setenv("ART_SERVER_PORT", "eight")
    with pytest.raises(click.BadParameter, match="eight"):
        up.make_context("up", [])
    monkeypatch.delenv("ART_SERVER_PORT")
    assert up.make_context("up", []).params["port_base"] == 50051
    with fake_judge() as api:
        api.then(lambda _: completion("select: 1"))
        environment = {"OPENAI_BASE_URL": api.base_url, "OPENAI_API_KEY": "the-key"}
        arguments = ("-a", "openai:model", "--limit", "1", "-o", "json")
        result = await invoke(
            "eval", "email_search", *arguments, cwd=tmp_path, environment=environment
        )
    assert result.code == 0, result.err
    assert set(api.authorizations) == {"Bearer the-key"}


def test_s3_the_workers_of_the_tutorial_are_ours_where_ours_are_not_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (name,) = re.findall(r"where `(PODIUM_\w+)` is not set", told()["ART_CLIENT_WORKERS"])
    monkeypatch.setenv("ART_CLIENT_WORKERS", "4")
    assert load_settings(Settings).workers == 4
    monkeypatch.setenv(name, "2")
    assert load_settings(Settings).workers == 2
    # Of what is not asked, nothing is wrong.
    monkeypatch.setenv("ART_CLIENT_WORKERS", "four")
    assert load_settings(Settings).workers == 2
    monkeypatch.delenv(name)
    for wrong in ("four", "0", "257", "-1", "4.0", "\u0664", "9" * 5000):
        monkeypatch.setenv("ART_CLIENT_WORKERS", wrong)
        with pytest.raises(SystemExit):
            load_settings(Settings)
        err = capsys.readouterr().err
        assert f"ART_CLIENT_WORKERS: got {wrong[:80]!r}: must be a whole number" in err
    # As whoever passes on a variable that he has not set.
    monkeypatch.setenv("ART_CLIENT_WORKERS", "")
    assert load_settings(Settings).workers == 1
    values = yaml.safe_load((ROOT / "charts/podium/values.yaml").read_text())
    (row,) = re.findall(r"^\| S20 \| .*$", DOCUMENT, re.MULTILINE)
    assert f"`{name}=4`" in row
    assert row.startswith("| S20 | `ART_CLIENT_WORKERS=4` |")
    for key in re.findall(r"`rollout\.(\w+)(?:: 4)?`", row):
        assert values["rollout"][key] == 1, key


def test_s3_every_variable_of_the_tutorial_is_read_in_the_product() -> None:
    for name in told():
        assert any(read_in(folder, name) for folder in ("libs", "services", "charts")), name


def test_s2_the_families_that_need_not_agree_are_told() -> None:
    source = (ROOT / "tests/integration/test_trainer_families.py").read_text()
    (exempt,) = re.findall(r"^UNFAITHFUL = (\{.*\})$", source, re.MULTILINE)
    # One family, so one section; another one needs its own words.
    assert exempt == '{"kimi"}'
    section = DOCUMENT.partition("\n## Kimi on a CPU\n")[2].partition("\n## ")[0]
    assert "exempt" in section
    assert "multi-head latent attention" in section
    assert "Kimi" in (ROOT / "services/trainer/README.md").read_text()
    assert "tutorial_rows.md#kimi-on-a-cpu" in (ROOT / "services/trainer/README.md").read_text()
