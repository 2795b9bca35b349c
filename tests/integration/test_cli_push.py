"""`podium checkpoint push`, by the hub's own client, and `--gguf`, which Transformers reads."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.local.models import digest
from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium
from support.hub_here import hub_at
from support.hub_uploads import TOKEN, upload_hub
from support.tiny_adapter import logits, write_adapter
from support.tiny_model import build_tiny_model


@pytest.fixture
async def published(tmp_path: Path) -> AsyncIterator[FakePodium]:
    base = build_tiny_model(tmp_path / "base")
    write_adapter(base, tmp_path / "adapter")
    names = ("adapter_config.json", "adapter_model.safetensors")
    files = {f"adapter/{name}": (tmp_path / "adapter" / name).read_bytes() for name in names}
    async with fake_podium() as fake:
        version = fake.registry.publish("w", 5, files)
        version.manifest.base_model = str(base)
        version.manifest.base_model_digest = digest(base)
        version.evaluation_metrics["success"] = 0.75
        yield fake


async def _push(fake: FakePodium, folder: Path, *more: str, hub: str, token: str) -> Result:
    with hub_at(hub, folder / "hf"):
        return await invoke(
            "checkpoint",
            "push",
            *more,
            cwd=folder,
            environment={**fake.environment, "HF_TOKEN": token},
        )


@pytest.mark.long
async def test_an_adapter_and_a_gguf_are_pushed_with_a_card(
    published: FakePodium, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with upload_hub() as hub:
        push = functools.partial(_push, published, tmp_path, hub=hub.endpoint, token=TOKEN)
        done = await push("w@5", "me/agent", "--private")
        assert done.code == 0, done.err
        assert done.out.strip() == f"{hub.endpoint}/me/agent/commit/{'1' * 40}"
        assert hub.created[0]["name"] == "agent"
        assert hub.created[0]["visibility"] == "private"
        adapter = hub.files["me/agent@main:adapter_model.safetensors"]
        assert adapter == (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
        card = hub.files["me/agent@main:README.md"].decode()
        assert "library_name: peft" in card
        assert "| `success` | 0.75 |" in card
        assert str(tmp_path) not in card, "a folder of this machine is nobody's business"
        done = await push("w@5", "me/agent", "--gguf", "--revision", "q")
        assert done.code == 0, done.err
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "w-5.gguf").write_bytes(hub.files["me/agent@q:w-5.gguf"])
    read = AutoModelForCausalLM.from_pretrained(
        tmp_path / "file", gguf_file="w-5.gguf", dtype=torch.float32
    )
    with torch.no_grad():
        got = read.eval()(torch.arange(40, 60)[None]).logits
    expected, plain = (logits(tmp_path / "base", a) for a in (tmp_path / "adapter", None))
    # Rounded to the base's bfloat16 once, as with --merged.
    torch.testing.assert_close(got, expected, atol=0.05, rtol=0.05)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(got, plain, atol=0.05, rtol=0.05)
    words = "Hello, wörld 1234! <|im_start|>user\n\ttabs 你好"
    own = AutoTokenizer.from_pretrained(tmp_path / "base")
    other = AutoTokenizer.from_pretrained(tmp_path / "file", gguf_file="w-5.gguf")
    assert other(words).input_ids == own(words).input_ids


async def test_what_a_hub_refuses_is_told(published: FakePodium, tmp_path: Path) -> None:
    with upload_hub() as hub:
        push = functools.partial(_push, published, tmp_path, hub=hub.endpoint, token="hf_another")
        refused = await push("w@5", "me/agent")
        assert refused.code == 4, refused.err
        assert "Invalid username or password" in refused.err
        assert "HF_TOKEN" in refused.err
        assert "hf_another" not in refused.err
    away = await push("w@5", "me/agent")
    assert away.code == 3, away.err
    assert "cannot be reached" in away.err
    wrong = await push("w@5", "agent")
    assert wrong.code == 2
    assert "OWNER/NAME" in wrong.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "gpt_oss"}, "model_type is 'gpt_oss'"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8}}, "rope_type is 'llama3'"),
        ({"dtype": "float8"}, "dtype is 'float8'"),
        # Of the class, where the file is silent.
        ({"model_type": "mistral"}, "attention is 'a sliding window'"),
    ],
)
def test_what_has_no_gguf_here_is_told_with_who_makes_one(
    change: dict[str, object], words: str, tmp_path: Path
) -> None:
    from podium.cli.gguf_file import write_gguf
    from podium.core.errors import FailedPreconditionError

    base = build_tiny_model(tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FailedPreconditionError, match=words) as refused:
        write_gguf(base, tmp_path / "x.gguf", "x")
    assert "convert_hf_to_gguf.py" in str(refused.value)
    assert not (tmp_path / "x.gguf").exists()
