"""`podium chat` and `podium checkpoint`: policies that are served and taken away."""

from __future__ import annotations

import json

import pytest
from support.cli_user import Cli, add_job


async def test_chat_once_and_from_a_pipe(cli: Cli) -> None:
    assert (await cli("chat", "--once", "a b")).out == "b a \n"
    piped = await cli("chat", "-m", "w@2", "--system", "be brief", stdin="c d\n")
    assert (piped.code, piped.out) == (0, "d c \n")
    assert cli.fake.inference.loaded == [("w", 2)], "a version that the pool lacks is loaded"
    assert [m.content for m in cli.fake.inference.chats[1].messages] == ["be brief", "c d"]


async def test_chat_with_the_best_version_is_with_one_version(cli: Cli) -> None:
    cli.fake.registry.publish("w", 3, {"adapter/a": b"x"}).aliases.append("best")
    cli.fake.registry.publish("w", 4, {"adapter/a": b"y"})
    done = await cli("chat", "-m", "w@best", "--once", "a b")
    assert (done.code, done.out) == (0, "b a \n")
    assert cli.fake.inference.loaded == [("w", 3)]
    assert cli.fake.inference.chats[0].policy.version == 3
    missing = await cli("chat", "-m", "w@worst", "--once", "a b")
    assert missing.code == 5


async def test_an_evaluation_of_the_best_version_is_of_one_version(cli: Cli) -> None:
    cli.fake.registry.publish("w", 3, {"adapter/a": b"x"}).aliases.append("best")
    done = await cli("eval", "email_search", "-a", "w@best")
    assert done.code == 0
    assert "w@best is w@3" in done.err
    assert cli.fake.inference.loaded == [("w", 3)]


@pytest.mark.parametrize("model", ["base", "w@2", "v@9"])
async def test_a_merged_pool_serves_what_is_named_and_then_what_it_served(
    cli: Cli, model: str
) -> None:
    add_job(cli.fake, "w")
    cli.fake.inference.merged, cli.fake.inference.loaded = True, [("w", 18)]
    done = await cli("chat", "-m", model, "--once", "a b")
    assert (done.code, done.out) == (0, "b a \n"), done.err
    assert "loading w@18 again" in done.err
    assert cli.fake.inference.loaded == [("w", 18)]


async def test_agents_are_measured_in_turn_in_a_merged_pool(cli: Cli) -> None:
    add_job(cli.fake, "w")
    cli.fake.inference.merged, cli.fake.inference.loaded = True, [("w", 18)]
    done = await cli("eval", "email_search", "-a", "base", "-a", "w@12", "-a", "w@18")
    assert done.code == 0, done.err
    assert cli.fake.inference.loaded == [("w", 18)]
    asked = {(r.policy.job, r.policy.version) for r in cli.fake.rollout.requests}
    assert asked == {("", 0), ("w", 12), ("w", 18)}


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "PAUSING"])
async def test_a_merged_pool_is_not_taken_from_a_job_that_trains(cli: Cli, state: str) -> None:
    add_job(cli.fake, "w", state)
    cli.fake.inference.merged, cli.fake.inference.loaded = True, [("w", 18)]
    for model in ("base", "v@9", "w@2"):
        done = await cli("chat", "-m", model, "--once", "a b")
        assert (done.code, done.out) == (5, ""), done.err
        assert "serves w@18, which its job needs" in done.err
        assert cli.fake.inference.loaded == [("w", 18)]
    assert (await cli("chat", "-m", "w@18", "--once", "a b")).code == 0


async def test_chat_goes_on_from_a_history(cli: Cli) -> None:
    history = cli.folder / "history.json"
    history.write_text('[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]')
    assert (await cli("chat", "--history", "history.json", "--once", "b")).code == 0
    asked = cli.fake.inference.chats[0].messages
    assert [(m.role, m.content) for m in asked] == [(2, "q"), (3, "a"), (2, "b")]
    # As editors on Windows write it.
    history.write_text('[{"role": "user", "content": "\u00fc"}]', encoding="utf-8-sig")
    assert (await cli("chat", "--history", "history.json", "--once", "b")).code == 0
    assert cli.fake.inference.chats[-1].messages[0].content == "\u00fc"
    for wrong in (
        "{",
        '{"role": 1}',
        '[{"role": "robot", "content": "x"}]',
        # These were sent as the words None and [{'type': …}].
        '[{"role": "assistant", "content": null}]',
        '[{"role": "user", "content": [{"type": "text", "text": "q"}]}]',
        "[" * 100_000,
    ):
        history.write_text(wrong)
        refused = await cli("chat", "--history", "history.json", "--once", "b")
        assert refused.code == 2
        assert "--history" in refused.err


async def test_checkpoint_export(cli: Cli) -> None:
    files = {"adapter/adapter_config.json": b"{}", "state/optimizer.safetensors": b"x" * 5000}
    cli.fake.registry.publish("w", 2, files)
    done = await cli("checkpoint", "export", "w@2", "out")
    assert (done.code, done.out) == (0, "out\n")
    assert [path.name for path in (cli.folder / "out").iterdir()] == ["adapter_config.json"]
    again = await cli("checkpoint", "export", "w@latest", "out")
    assert again.code == 5
    assert "not empty" in again.err
    assert (await cli("checkpoint", "list", "w", "-o", "name")).out == "w@2\n"


async def test_what_is_exported_has_the_modes_of_new_files_and_the_hub_s_name(cli: Cli) -> None:
    config = json.dumps({"base_model_name_or_path": "smollm2-135m-instruct", "r": 8})
    files = {"adapter/adapter_config.json": config.encode(), "adapter/a/b": b"x"}
    cli.fake.registry.publish("w", 3, files)
    (cli.folder / "beside").touch()
    assert (await cli("checkpoint", "export", "w@3", "out")).code == 0
    out = cli.folder / "out"
    fresh = (cli.folder / "beside").stat().st_mode
    assert (out / "a" / "b").stat().st_mode == fresh
    named = json.loads((out / "adapter_config.json").read_text())
    assert named == {"base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct", "r": 8}
