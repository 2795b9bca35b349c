"""Shards on their way to files and back; several processes are in tests/integration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from podium.core.errors import DataLossError
from podium_trainer.learner import sharded
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.sharded import Shards, read_shards, shard_names


def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {f"weights.{i}": torch.randn(4, 8, generator=generator) for i in range(12)} | {
        "optimizer.step": torch.tensor([3.0])
    }


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    shards = Shards(state(), Ranks())
    (file,) = shards.wait()
    yield file.parent
    shards.close()
    assert not file.exists()


def test_what_changes_after_the_copy_is_not_in_the_files() -> None:
    tensors = state()
    shards = Shards(tensors, Ranks())
    for tensor in tensors.values():
        tensor.zero_()
    (file,) = shards.wait()
    read_shards(file.parent, tensors, Ranks())
    assert all(torch.equal(tensors[name], tensor) for name, tensor in state().items())
    shards.close()


def test_the_same_state_is_the_same_bytes(written: Path) -> None:
    made = set()
    for _ in range(6):
        shards = Shards(state(), Ranks())
        made |= {file.read_bytes() for file in shards.wait()}
        shards.close()
    assert made == {path.read_bytes() for path in written.iterdir()}


def test_large_states_lie_in_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "_FILE_BYTES", 4 * 8 * 4 * 5)
    shards = Shards(state(), Ranks())
    files = shards.wait()
    assert len(files) == 3
    assert shard_names(files[0].parent) == state().keys()
    back = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    read_shards(files[0].parent, back, Ranks())
    assert all(torch.equal(back[name], tensor) for name, tensor in state().items())
    files[1].unlink()
    with pytest.raises(DataLossError, match="of other tensors: weights"):
        read_shards(files[0].parent, back, Ranks())
    shards.close()


def test_what_does_not_fit_is_refused(written: Path) -> None:
    wider = {**state(), "weights.3": torch.zeros(4, 9)}
    with pytest.raises(DataLossError, match=r"weights\.3 does not fit"):
        read_shards(written, wider, Ranks())
    with pytest.raises(DataLossError, match=r"weights\.more is in one of the two"):
        read_shards(written, {**state(), "weights.more": torch.zeros(2)}, Ranks())
    (file,) = written.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DataLossError, match="cannot be read"):
        read_shards(written, state(), Ranks())
    with pytest.raises(DataLossError, match="cannot be read"):
        shard_names(written)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert shard_names(tmp_path / "none") == set()
