"""The nodes of an engine meet, refuse what does not fit, and notice each other's end."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from collections.abc import Iterator

import pytest
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium_inference.adapters.node_group import Leader, Member, in_thread
from podium_inference.settings import Settings
from pydantic import ValidationError
from support.waiting import eventually

TRAITS = {"tensor_parallel_size": 2, "dtype": "float32"}
HOST = "127.0.0.1"


class Group:
    """A leader of three nodes, and what it heard of them."""

    def __init__(self, nodes: int = 3) -> None:
        self.lost: queue.Queue[int] = queue.Queue()
        self.leaving: queue.Queue[int] = queue.Queue()
        self.leader = Leader(nodes, TRAITS, on_lost=self.lost.put, on_leaving=self.leaving.put)
        self.port = self.leader.listen(HOST, 0)

    async def gather(self, timeout_s: float = 30.0) -> int:
        return await self.leader.gather(timeout_s, lambda: 4711)

    async def joined(self, rank: int, traits: dict[str, object] = TRAITS) -> tuple[Member, int]:
        member = Member(rank, traits)
        return member, await in_thread(lambda: member.join(HOST, self.port, 30.0))

    async def met(self) -> list[Member]:
        """All nodes, after they have met."""
        coming = [asyncio.create_task(self.joined(rank)) for rank in (1, 2)]
        assert await self.gather() == 4711
        members = [await each for each in coming]
        assert {port for _, port in members} == {4711}
        return [member for member, _ in members]


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    made.leader.dismiss()


def close(member: Member) -> None:
    assert member._connection is not None
    member._connection.shutdown(socket.SHUT_RDWR)


async def heard(what: queue.Queue[int]) -> int:
    return await asyncio.to_thread(what.get, True, 30)


async def test_all_learn_where_to_meet_when_all_have_come(group: Group) -> None:
    # Held: a member that nobody holds closes its connection, and is one that went.
    members = await group.met()
    assert group.lost.empty()
    assert len(members) == 2


async def test_a_node_with_other_settings_is_told_which(group: Group) -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        await group.joined(1, {**TRAITS, "tensor_parallel_size": 4})
    assert caught.value.reason == "GROUP_MISMATCH"
    assert "tensor_parallel_size: got 4; the leader's is 2" in caught.value.message
    assert "dtype" not in caught.value.message
    # The leader waits on, and takes the right one.
    await group.met()


@pytest.mark.parametrize("rank", [0, 3])
async def test_a_rank_that_the_group_has_not_is_refused(group: Group, rank: int) -> None:
    with pytest.raises(FailedPreconditionError, match=f"got {rank}; allowed are 1 to 2"):
        await group.joined(rank)


async def test_two_nodes_of_one_rank_are_refused(group: Group) -> None:
    first = asyncio.create_task(group.joined(1))
    await eventually(lambda: 1 in group.leader._members)
    with pytest.raises(FailedPreconditionError, match="1 is there already"):
        await group.joined(1)
    second = asyncio.create_task(group.joined(2))
    await group.gather()
    await asyncio.gather(first, second)


async def test_the_leader_says_who_did_not_come(group: Group) -> None:
    coming = asyncio.create_task(group.joined(1))
    await eventually(lambda: 1 in group.leader._members)
    with pytest.raises(UnavailableError) as caught:
        await group.gather(0.05)
    assert caught.value.reason == "NODES_MISSING"
    assert "of 3 nodes 2 did not come" in caught.value.message
    coming.cancel()


async def test_a_node_says_that_no_leader_came() -> None:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError) as caught:
        await in_thread(lambda: Member(1, TRAITS).join(HOST, port, 0.1))
    assert caught.value.reason == "LEADER_MISSING"


async def test_a_node_that_goes_is_noticed(group: Group) -> None:
    _, second = await group.met()
    close(second)
    assert await heard(group.lost) == 2


async def test_a_node_that_must_end_says_so_first(group: Group) -> None:
    first, _ = await group.met()
    first.leave()
    assert await heard(group.leaving) == 1
    assert group.lost.empty()


async def test_nodes_know_whether_the_leader_meant_to_end(group: Group) -> None:
    ended: queue.Queue[bool] = queue.Queue()
    members = await group.met()
    for member in members:
        member.watch(ended.put)
    group.leader.dismiss()
    for member in members:
        assert await asyncio.to_thread(ended.get, True, 30) is True
        close(member)
    assert group.lost.empty()


async def test_nodes_notice_a_leader_that_goes_without_a_word(group: Group) -> None:
    ended: queue.Queue[bool] = queue.Queue()
    for member in await group.met():
        member.watch(ended.put)
    for connection in list(group.leader._members.values()):
        connection.shutdown(socket.SHUT_RDWR)
    assert await asyncio.to_thread(ended.get, True, 30) is False


async def test_what_speaks_something_else_is_sent_away(group: Group) -> None:
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"rank": 1}\n', b"\xff\xfe\n"):
        reader, writer = await asyncio.open_connection(HOST, group.port)
        writer.write(words)
        assert b"refused" in await reader.read()
        writer.close()
    await group.met()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nodes": 2}, "must divide tensor_parallel_size times pipeline_parallel_size, which is 1"),
        ({"nodes": 3, "tensor_parallel_size": 4}, "nodes: got 3"),
        ({"nodes": 2, "tensor_parallel_size": 2}, "leader_address: is empty"),
        ({"node_rank": 1}, "node_rank: got 1; allowed are 0 to 0"),
        ({"pipeline_parallel_size": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_make_no_group_are_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**values)
    assert words in str(refused.value)


def test_whoever_ends_before_the_thread_hears_nothing_more() -> None:
    begun, ended = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        begun.set()
        ended.wait()

    async def asks_and_goes() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_thread(work), 0.05)

    asyncio.run(asks_and_goes())
    assert begun.wait(60)
    failed: list[object] = []
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        ended.set()
        threads[0].join()
    finally:
        threading.excepthook = hook
    assert failed == []
