"""What `--merged` writes of bases as the hub has them, beside what PEFT says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from podium.cli.merge import merge
from podium.local.models import INDEX, digest
from podium.registry.v1 import registry_service_pb2 as pb
from safetensors.torch import load_file, save_file
from support.tiny_adapter import logits, write_adapter
from support.tiny_policy import build_small_llama

FORMAT = {"format": "pt"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return build_small_llama(tmp_path / "base", vocab_size=97)


def merged(base: Path) -> Path:
    write_adapter(base, base.with_name("adapter"))
    manifest = pb.Manifest(
        model="job", version=1, base_model=str(base), base_model_digest=digest(base)
    )
    target = base.with_name("merged")
    merge(manifest, base.with_name("adapter"), target)
    return target


def test_sampling_defaults_that_transformers_would_not_save_are_copied(base: Path) -> None:
    """Llama 2's: a temperature, and no `do_sample`. A tokenizer there is none."""
    file = base / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": [2, 5], "temperature": 0.9, "top_p": 0.6}))
    target = merged(base)
    assert (target / file.name).read_text() == file.read_text()
    expected = logits(base, base.with_name("adapter"))
    torch.testing.assert_close(logits(target), expected, atol=1e-4, rtol=1e-4)


def test_every_tensor_keeps_its_type_and_its_file(base: Path) -> None:
    """Mixed types, a configuration that names none, shards, and the same weights once more."""
    held = load_file(base / "model.safetensors")
    mixed = {n: t.half() if "mlp" in n else t.bfloat16() for n, t in held.items()}
    files = {
        name: f"model-0000{1 + ('layers.1' in name)}-of-00002.safetensors" for name in sorted(mixed)
    }
    for file in set(files.values()):
        save_file({n: t for n, t in mixed.items() if files[n] == file}, base / file, FORMAT)
    (base / "model.safetensors").unlink()
    (base / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}))
    save_file({"wq": torch.zeros(2, 2)}, base / "consolidated.safetensors", FORMAT)
    config = json.loads((base / "config.json").read_text())
    config.pop("dtype", None)
    (base / "config.json").write_text(json.dumps(config))

    target = merged(base)
    assert {path.name for path in target.glob("*.safetensors")} == set(files.values())
    written = {n: t for file in set(files.values()) for n, t in load_file(target / file).items()}
    assert {n: t.dtype for n, t in written.items()} == {n: t.dtype for n, t in mixed.items()}
    same = {n for n, t in mixed.items() if torch.equal(written[n], t)}
    assert set(mixed) - same == {
        f"model.layers.{n}.{name}.weight"
        for n in range(2)
        for name in ("self_attn.q_proj", "mlp.down_proj")
    }
    expected = logits(base, base.with_name("adapter"))
    # Rounded once, to seven bits of what was added up.
    torch.testing.assert_close(logits(target), expected, atol=0.3, rtol=0.05)
