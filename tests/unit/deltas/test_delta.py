"""What changed between two versions' weights, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from podium.core.errors import DataLossError
from podium.kit.deltas import apply_delta, write_delta
from safetensors import safe_open
from safetensors.torch import load_file, save_file

NAMES = ("embed.weight", "layers.0.weight", "layers.1.weight", "norm.weight")


def save(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """In two files, with a configuration."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for number, names in enumerate((NAMES[:2], NAMES[2:])):
        held = {name: tensors[name] for name in names if name in tensors}
        save_file(held, folder / f"model-{number}.safetensors")
    return folder


def load(folder: Path) -> dict[str, torch.Tensor]:
    return {name: t for path in folder.glob("*.safetensors") for name, t in load_file(path).items()}


def weights(seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(8, 16 * (i + 1), generator=generator).to(dtype)
        for i, name in enumerate(NAMES)
    }


@settings(max_examples=30, deadline=None)
@given(
    share=st.lists(st.sampled_from([0.0, 0.01, 0.2, 0.6, 1.0]), min_size=4, max_size=4),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    seed=st.integers(0, 1000),
)
def test_before_plus_delta_is_after(
    tmp_path_factory: pytest.TempPathFactory, share: list[float], dtype: torch.dtype, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("delta")
    old = weights(seed, dtype)
    generator = torch.Generator().manual_seed(seed + 1)
    new = {
        name: torch.where(torch.rand(tensor.shape, generator=generator) < s, -tensor, tensor)
        for (name, tensor), s in zip(old.items(), share, strict=True)
    }
    before, after = save(folder / "a", old), save(folder / "b", new)
    write_delta(before, after, folder / "delta.safetensors")
    apply_delta(before, [folder / "delta.safetensors"], folder / "c")
    for name, tensor in load(folder / "c").items():
        assert torch.equal(tensor, new[name])
    assert sorted(p.name for p in (folder / "c").iterdir()) == sorted(
        p.name for p in after.iterdir()
    )


def test_a_small_change_makes_a_small_file(tmp_path: Path) -> None:
    old = {name: torch.randn(512, 512).to(torch.bfloat16) for name in NAMES}
    new = {name: tensor.clone() for name, tensor in old.items()}
    new["layers.0.weight"][3, 5] = 7
    before, after = save(tmp_path / "a", old), save(tmp_path / "b", new)
    write_delta(before, after, tmp_path / "delta.safetensors")
    whole = sum(path.stat().st_size for path in after.glob("*.safetensors"))
    assert (tmp_path / "delta.safetensors").stat().st_size < whole / 500


def test_the_same_delta_is_the_same_bytes(tmp_path: Path) -> None:
    before = save(tmp_path / "a", weights(0, torch.float32))
    after = save(tmp_path / "b", weights(1, torch.float32))
    made = set()
    for number in range(8):
        write_delta(before, after, tmp_path / f"{number}.safetensors")
        made.add((tmp_path / f"{number}.safetensors").read_bytes())
    assert len(made) == 1


def test_bits_count_and_not_numbers(tmp_path: Path) -> None:
    old = weights(0, torch.float32)
    old["norm.weight"][0, :2] = torch.tensor([0.0, float("nan")])
    new = {name: tensor.clone() for name, tensor in old.items()}
    new["norm.weight"][0, 0] = -0.0
    before, after = save(tmp_path / "a", old), save(tmp_path / "b", new)
    write_delta(before, after, tmp_path / "d.safetensors")
    assert set(load_file(tmp_path / "d.safetensors")) == {"norm.weight:index", "norm.weight:value"}
    apply_delta(before, [tmp_path / "d.safetensors"], tmp_path / "c")
    assert str(load(tmp_path / "c")["norm.weight"][0, 0].item()) == "-0.0"


def test_other_weights_and_broken_files_are_refused(tmp_path: Path) -> None:
    old, new = weights(0, torch.float32), weights(0, torch.float32)
    new["norm.weight"][0, 0] += 1
    before, after = save(tmp_path / "a", old), save(tmp_path / "b", new)
    delta = tmp_path / "d.safetensors"
    write_delta(before, after, delta)
    stranger = save(tmp_path / "x", weights(9, torch.float32))
    with pytest.raises(DataLossError, match="is not what the delta leads to"):
        apply_delta(stranger, [delta], tmp_path / "y")
    delta.write_bytes(delta.read_bytes()[:-3])
    with pytest.raises(DataLossError, match="cannot be applied"):
        apply_delta(before, [delta], tmp_path / "z")


def test_folders_of_other_tensors_have_no_delta(tmp_path: Path) -> None:
    before = save(tmp_path / "a", weights(0, torch.float32))
    after = save(tmp_path / "b", weights(0, torch.bfloat16))
    with pytest.raises(ValueError, match="another shape or type"):
        write_delta(before, after, tmp_path / "d.safetensors")


def test_a_delta_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    before = save(tmp_path / "a", weights(0, torch.float32))
    delta = tmp_path / "d.safetensors"
    write_delta(before, before, delta)
    with safe_open(delta, framework="pt") as opened:
        ((key, text),) = opened.metadata().items()
    save_file({}, delta, metadata={key: text.replace("model-0", "../model-0")})
    with pytest.raises(DataLossError, match="outside its folder"):
        apply_delta(before, [delta], tmp_path / "z")
    assert not (tmp_path / "model-0.safetensors").exists()


def test_deltas_of_parts_lead_to_the_whole(tmp_path: Path) -> None:
    old, new = weights(0, torch.float32), weights(1, torch.float32)
    before = save(tmp_path / "a", old)
    halves = [NAMES[:2], NAMES[2:]]
    deltas = []
    for number, names in enumerate(halves):
        folders = [
            save(tmp_path / f"{kind}{number}", {name: held[name] for name in names})
            for kind, held in (("was", old), ("now", new))
        ]
        deltas.append(tmp_path / f"{number}.safetensors")
        write_delta(*folders, deltas[-1])
    apply_delta(before, deltas, tmp_path / "c")
    assert load(tmp_path / "c").keys() == new.keys()
    assert all(torch.equal(tensor, new[name]) for name, tensor in load(tmp_path / "c").items())
    with pytest.raises(DataLossError, match="of other tensors"):
        apply_delta(before, deltas[:1], tmp_path / "d")
