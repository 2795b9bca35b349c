"""`podium checkpoint export --merged` gives a model that Transformers loads as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.local.models import digest
from podium.registry.v1 import registry_service_pb2 as registry_pb2
from support.cli import invoke
from support.fake_podium import fake_podium
from support.tiny_adapter import logits, write_adapter
from support.tiny_model import build_tiny_model


async def test_merged_export_equals_base_plus_adapter(tmp_path: Path) -> None:
    import torch
    from safetensors import safe_open
    from transformers import AutoTokenizer

    base = build_tiny_model(tmp_path / "base")
    write_adapter(base, tmp_path / "adapter")
    async with fake_podium() as fake:
        files = {
            f"adapter/{name}": (tmp_path / "adapter" / name).read_bytes()
            for name in ("adapter_config.json", "adapter_model.safetensors")
        }
        version = fake.registry.publish("w", 5, files)
        version.manifest.base_model = str(base)
        version.manifest.base_model_digest = digest(base)
        done = await invoke(
            "checkpoint",
            "export",
            "w@5",
            "merged",
            "--merged",
            cwd=tmp_path,
            environment=fake.environment,
        )
        assert done.code == 0, done.err
        version.manifest.base_model_digest = "sha256:other"
        refused = await invoke(
            "checkpoint",
            "export",
            "w@5",
            "other",
            "--merged",
            cwd=tmp_path,
            environment=fake.environment,
        )
        assert refused.code == 5
        assert "differs" in refused.err
    merged = tmp_path / "merged"
    expected, plain = logits(base, tmp_path / "adapter"), logits(base)
    got = logits(merged)
    assert isinstance(got, torch.Tensor)
    # The export is rounded to the base's bfloat16 once.
    torch.testing.assert_close(got, expected, atol=0.05, rtol=0.05)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(got, plain, atol=0.05, rtol=0.05)
    with (
        safe_open(base / "model.safetensors", "pt") as first,
        safe_open(merged / "model.safetensors", "pt") as second,
    ):
        assert set(first.keys()) == set(second.keys())
        for name in first.keys():  # noqa: SIM118 : not a mapping
            assert first.get_slice(name).get_dtype() == second.get_slice(name).get_dtype()
    assert AutoTokenizer.from_pretrained(merged).chat_template


async def test_whole_weights_are_exported_as_they_are(tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base")
    async with fake_podium() as fake:
        files = {f"model/{path.name}": path.read_bytes() for path in base.iterdir()}
        version = fake.registry.publish("w", 5, {**files, "state/state.json": b"{}"})
        version.manifest.kind = registry_pb2.VERSION_KIND_FULL
        done = await invoke(
            "checkpoint", "export", "w@5", "whole", cwd=tmp_path, environment=fake.environment
        )
        assert done.code == 0, done.err
    exported = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert exported == sorted(path.name for path in base.iterdir())
