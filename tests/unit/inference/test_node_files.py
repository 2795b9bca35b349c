"""A version's files go to every node whole, or the failure is told."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from podium.core.errors import UnavailableError
from podium_inference.adapters import node_files
from podium_inference.adapters.node_files import NodeFiles, on_every_node


class Worker(NodeFiles):
    """One of a node, which has its own folder where the leader has `leader`."""

    def __init__(self, node: int, local_rank: int, leader: Path, own: Path) -> None:
        self.parallel_config = SimpleNamespace(node_rank=node)
        self.local_rank = local_rank
        self.leader, self.own = leader, own

    def answer(self, method: str, path: str, *rest: object) -> str:
        there = self.own / Path(path).relative_to(self.leader)
        return str(getattr(self, method)(str(there), *rest))


class Nodes:
    """A leader and another node, of two workers each."""

    def __init__(self, folder: Path) -> None:
        self.leader, self.other = folder / "leader", folder / "other"
        self.workers = [
            Worker(node, local, self.leader, own)
            for node, own in ((0, self.leader), (1, self.other))
            for local in (0, 1)
        ]
        self.calls = 0

    async def rpc(self, method: str, args: tuple[object, ...]) -> list[str]:
        self.calls += 1
        return [worker.answer(method, str(args[0]), *args[1:]) for worker in self.workers]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def test_files_are_on_every_node_while_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_files, "_CHUNK_BYTES", 1000)
    nodes = Nodes(tmp_path)
    source = nodes.leader / "job-1-1"
    draw = random.Random(0)
    files = {"a": draw.randbytes(2500), "b/c": draw.randbytes(2000), "empty": b""}
    for name, data in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    async with on_every_node(nodes.rpc, source):
        assert content(nodes.other / "job-1-1") == files
        assert nodes.calls > 3 + 2
    assert not (nodes.other / "job-1-1").exists()
    # The leader's own are its own to remove.
    assert content(source) == files


async def test_a_node_that_cannot_store_is_named_and_cleared(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    source = nodes.leader / "job-1-1"
    source.mkdir(parents=True)
    (source / "one").write_bytes(b"1")
    (source / "two").write_bytes(b"2")
    (nodes.other / "job-1-1" / "two").mkdir(parents=True)
    with pytest.raises(UnavailableError) as caught:
        async with on_every_node(nodes.rpc, source):
            raise AssertionError("it is not on every node")
    assert caught.value.reason == "NODE_FILES"
    assert "two cannot be kept on every node: node 1: Is a directory" in caught.value.message
    assert not (nodes.other / "job-1-1").exists()


def test_a_part_that_is_missing_is_told(tmp_path: Path) -> None:
    (worker,) = (
        w for w in Nodes(tmp_path).workers if w.parallel_config.node_rank and not w.local_rank
    )
    target = str(tmp_path / "file")
    assert worker.podium_put_file(target, 0, b"abc") == ""
    assert "has 3 bytes, not 5" in worker.podium_put_file(target, 5, b"de")
    # A repeated transfer begins anew.
    assert worker.podium_put_file(target, 0, b"x") == ""
    assert Path(target).read_bytes() == b"x"
