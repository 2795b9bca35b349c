"""The nodes of one engine: they meet before it starts, and none outlives another.

The leader listens. Every other node keeps one connection to it, from before the engine starts to
the end, and whichever end closes first ends both: the kernel closes it for a process that dies,
and its keepalive probes find a machine that went silently. Threads read, because vLLM holds the
event loop for as long as it loads a model. Each message is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from podium.core.errors import FailedPreconditionError, UnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_LINE = 1 << 16
_HELLO_SECONDS = 10.0
_AGAIN_SECONDS = 0.5
# A machine that is gone is noticed after 10 + 3 * 5 seconds.
_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 10),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 25_000),
)


@dataclass(frozen=True)
class NodePlace:
    """A node's place in its group, and where vLLM's processes meet: `address:port`."""

    rank: int
    nodes: int
    address: str
    port: int


class Leader:
    """Node 0's side."""

    def __init__(
        self,
        nodes: int,
        traits: Mapping[str, Any],
        *,
        on_lost: Callable[[int], None],
        on_leaving: Callable[[int], None],
    ) -> None:
        """Nothing is bound yet.

        Args:
            traits: what all nodes must have in common.
            on_lost: called with the rank of a node that went after all had met, in a thread.
            on_leaving: called with the rank of a node that was told to end, in a thread.
        """
        self._nodes = nodes
        self._traits = _plain(traits)
        self._on_lost = on_lost
        self._on_leaving = on_leaving
        self._lock = threading.Lock()
        self._members: dict[int, socket.socket] = {}
        self._gathered = False
        self._dismissed = False
        self._socket: socket.socket | None = None

    def listen(self, host: str, port: int) -> int:
        """Takes nodes from now on; the port, for which 0 means any free one.

        Raises:
            UnavailableError: PORT_UNAVAILABLE.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise UnavailableError(
                f"the group cannot listen on {host}:{port}: {error.strerror}",
                reason="PORT_UNAVAILABLE",
            ) from error
        threading.Thread(target=self._accept, name="group", daemon=True).start()
        bound: int = self._socket.getsockname()[1]
        return bound

    async def gather(self, timeout_s: float, meeting_port: Callable[[], int]) -> int:
        """Waits for every node, and tells all of them the port at which vLLM's processes meet.

        Raises:
            UnavailableError: NODES_MISSING.
        """
        until = time.monotonic() + timeout_s
        while not self._all_in():
            if time.monotonic() > until:
                with self._lock:
                    missing = sorted(set(range(1, self._nodes)) - self._members.keys())
                raise UnavailableError(
                    f"of {self._nodes} nodes {', '.join(map(str, missing))} did not come within"
                    f" {timeout_s:g} s",
                    reason="NODES_MISSING",
                )
            await asyncio.sleep(0.1)
        port = meeting_port()
        self._tell({"port": port})
        return port

    def dismiss(self) -> None:
        """Tells the nodes that this is the end; whatever they do from now on is right."""
        with self._lock:
            self._dismissed = True
        self._tell({"done": True})
        if self._socket is not None:
            self._socket.close()

    def _all_in(self) -> bool:
        with self._lock:
            self._gathered = len(self._members) == self._nodes - 1
            return self._gathered

    def _tell(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            members = sorted(self._members.items())
        for rank, connection in members:
            try:
                connection.sendall(_line(message))
            except OSError as error:
                # Its thread notices as well, and knows whether that is the group's end.
                logger.warning("cannot reach node %d: %s", rank, error)

    def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(
                target=self._attend, args=(connection,), name="group-node", daemon=True
            ).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            connection.settimeout(_HELLO_SECONDS)
            try:
                rank, wrong = self._admit(_read(lines), connection)
                if wrong:
                    logger.warning("refused a node: %s", wrong)
                    connection.sendall(_line({"refused": wrong}))
                    return
                _keep_alive(connection)
                while message := _read(lines):
                    if message.get("leaving"):
                        self._on_leaving(rank)
            except OSError as error:
                logger.warning("a node's connection broke: %s", error)
            self._gone(connection)

    def _admit(self, hello: Mapping[str, Any], connection: socket.socket) -> tuple[int, str]:
        """Its rank, and why it is not taken, if it is not."""
        rank = hello.get("rank")
        if not isinstance(rank, int) or not 0 < rank < self._nodes:
            return 0, f"node_rank: got {rank}; allowed are 1 to {self._nodes - 1}"
        theirs = hello.get("traits")
        differing = (
            [
                f"{name}: got {theirs.get(name)!r}; the leader's is {wanted!r}"
                for name, wanted in self._traits.items()
                if theirs.get(name) != wanted
            ]
            if isinstance(theirs, dict)
            else ["traits: none came"]
        )
        if differing:
            return rank, "; ".join(differing)
        with self._lock:
            if rank in self._members:
                return rank, f"node_rank: {rank} is there already"
            self._members[rank] = connection
        logger.info("node %d has come", rank)
        return rank, ""

    def _gone(self, connection: socket.socket) -> None:
        with self._lock:
            rank = next((r for r, c in self._members.items() if c is connection), None)
            if rank is None:
                return
            lost = self._gathered and not self._dismissed
            # Before the others have come it may come again.
            del self._members[rank]
        if lost:
            self._on_lost(rank)


class Member:
    """Any other node's side."""

    def __init__(self, rank: int, traits: Mapping[str, Any]) -> None:
        """See `Leader`."""
        self._hello = {"rank": rank, "traits": _plain(traits)}
        self._connection: socket.socket | None = None
        self._lines: Any = None

    def join(self, host: str, port: int, timeout_s: float) -> int:
        """Waits for the leader and the other nodes: the port where vLLM's processes meet. Blocking.

        Raises:
            UnavailableError: LEADER_MISSING.
            FailedPreconditionError: GROUP_MISMATCH, the leader does not take this node.
        """
        until = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._greet(host, port, until - time.monotonic())
            except OSError as error:
                answer, why = {}, str(error)
            else:
                why = "it ended before all nodes had come"
            if "refused" in answer:
                raise FailedPreconditionError(
                    f"the leader does not take this node: {answer['refused']}",
                    reason="GROUP_MISMATCH",
                )
            if "port" in answer:
                return int(answer["port"])
            if time.monotonic() > until:
                raise UnavailableError(
                    f"the leader {host}:{port} did not gather its nodes within {timeout_s:g} s:"
                    f" {why}",
                    reason="LEADER_MISSING",
                )
            time.sleep(_AGAIN_SECONDS)

    def watch(self, on_end: Callable[[bool], None]) -> None:
        """Calls `on_end` in a thread when the leader ends: whether it said so before."""

        def read() -> None:
            said = False
            try:
                while message := _read(self._lines):
                    said = said or bool(message.get("done"))
                    if said:
                        break
            except OSError as error:
                logger.warning("the connection to the leader broke: %s", error)
            on_end(said)

        threading.Thread(target=read, name="group-leader", daemon=True).start()

    def leave(self) -> None:
        """Tells the leader that this node must end."""
        assert self._connection is not None
        try:
            self._connection.sendall(_line({"leaving": True}))
        except OSError as error:
            logger.info("the leader has gone already: %s", error)

    def _greet(self, host: str, port: int, timeout_s: float) -> Mapping[str, Any]:
        connection = socket.create_connection((host, port), timeout=max(0.1, timeout_s))
        try:
            lines = connection.makefile("rb")
            connection.sendall(_line(self._hello))
            answer = _read(lines)
            if "port" in answer:
                _keep_alive(connection)
                self._connection, self._lines = connection, lines
            return answer
        finally:
            if self._connection is not connection:
                connection.close()


async def in_thread(work: Callable[[], T]) -> T:
    """As asyncio.to_thread, by a thread that the process need not wait for when it ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def tell(setter: Callable[[Any], None], value: Any) -> None:
        # A loop that has been closed meanwhile has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, setter, value)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            tell(future.set_exception, error)
        else:
            tell(future.set_result, result)

    threading.Thread(target=run, daemon=True).start()
    return await future


def _plain(traits: Mapping[str, Any]) -> dict[str, Any]:
    """As the other side reads them."""
    plain: dict[str, Any] = json.loads(json.dumps(traits))
    return plain


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _read(lines: Any) -> Mapping[str, Any]:
    """The next message; empty at the end, and for what is none.

    Raises:
        OSError: the connection broke.
    """
    try:
        message = json.loads(lines.readline(_LONGEST_LINE) or b"{}")
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _keep_alive(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
