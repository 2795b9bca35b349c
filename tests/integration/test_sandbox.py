"""Hostile programs in the real sandbox, and that the same would work outside of it."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from podium.environments.sandbox import Outcome
from support.namespaces import needs_namespaces
from support.sandboxed import MIB, Marked, found, outside, run, sandbox
from support.waiting import eventually

pytestmark = needs_namespaces


async def test_a_program_reads_writes_and_ends() -> None:
    outcome = await run(
        "import sys\nprint(input()[::-1])\nprint('oh', file=sys.stderr)\nsys.exit(3)", b"abc\n"
    )
    assert outcome == Outcome(3, b"cba\n", b"oh\n")


async def test_a_program_can_be_talked_with() -> None:
    async with sandbox().start("while True: print(2 * int(input()), flush=True)") as process:
        for number in (1, 21):
            await process.write(f"{number}\n".encode())
            assert await process.read_line() == f"{2 * number}\n".encode()
        outcome = await process.finish()
    assert b"EOFError" in outcome.stderr


async def test_much_input_and_much_output_do_not_wait_for_each_other() -> None:
    data = os.urandom(3 * MIB)
    copy = "import sys\nwhile b := sys.stdin.buffer.read(999): sys.stdout.buffer.write(b)"
    assert (await run(copy, data, output_bytes=4 * MIB)).stdout == data
    assert (await run("print(1)", data)).stdout == b"1\n"


async def test_processes_and_threads_are_counted() -> None:
    fork = """
import os, signal
made = 0
try:
    while made < 50:
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError as error:
    print('[%d, %d]' % (made, error.errno))
"""
    assert await found(fork, processes=5) == [4, errno.EAGAIN]
    thread = """
import threading
stop, made = threading.Event(), 0
try:
    while made < 50:
        threading.Thread(target=stop.wait, daemon=True).start()
        made += 1
except RuntimeError:
    print(made)
"""
    assert await found(thread, processes=3) == 2


async def test_two_sandboxes_do_not_count_each_others_processes() -> None:
    waits = "import os\nif os.fork() == 0:\n  os.read(0, 1)\nelse:\n  print('forked', flush=True)\n"
    held = waits + "  os.read(0, 1)"
    async with sandbox(processes=2).start(held) as process:
        assert await process.read_line() == b"forked\n"
        assert (await run(waits, processes=2)).stdout == b"forked\n"


async def test_a_fork_bomb_ends_and_leaves_nothing() -> None:
    marked = Marked(processes=5, wall_seconds=8)
    bomb = """
import os
print(1, flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    async with marked.sandbox.start(bomb) as process:
        assert await process.read_line() == b"1\n"
        await eventually(lambda: len(marked.pids()) >= 5)
        outcome = await process.finish()
    assert outcome.stopped_by == "wall_time"
    assert marked.pids() == []


async def test_memory_is_shared_out_among_the_processes() -> None:
    fill = """
import mmap
blocks = []
try:
    while len(blocks) < 1000:
        blocks.append(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE))
        blocks[-1].write(b'x' * (1 << 20))
except (MemoryError, OSError):
    pass
print(len(blocks))
"""
    alone = await found(fill, memory_bytes=200 * MIB)
    both = await found(fill, memory_bytes=200 * MIB, processes=2)
    assert 150 < alone < 200
    assert 50 < both < 100
    outcome = await run("x = bytearray(300 << 20)", memory_bytes=256 * MIB)
    assert b"MemoryError" in outcome.stderr
    assert (await run("x = bytearray(300 << 20)", memory_bytes=512 * MIB)).returncode == 0


UNCOUNTED = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
made = []
shared = libc.shmget(0, 4096, 0o1600)
if shared >= 0:
    libc.shmctl(shared, 0, None)
    made.append('shm')
queue = libc.msgget(0, 0o1600)
if queue >= 0:
    libc.msgctl(queue, 0, None)
    made.append('queue')
try:
    os.close(os.memfd_create('x'))
    made.append('memfd')
except PermissionError:
    pass
print(json.dumps(made))
"""


async def test_there_is_no_memory_past_the_limit() -> None:
    assert outside(UNCOUNTED) == ["shm", "queue", "memfd"]
    assert await found(UNCOUNTED) == []


FILL_DISK = """
import json, os
written, why = 0, 0
for n in range(40):
    try:
        with open('/tmp/%d' % n, 'wb', buffering=0) as file:
            for _ in range(64):
                written += file.write(b'x' * 65536)
    except OSError as error:
        why = error.errno
        break
places = []
for place in ('/', '/dev', '/usr/lib', '/python', '/python/bin', '/python/lib', '/tmp', '/home',
              '/dev/shm', os.path.dirname(os.__file__), os.path.dirname(os.__file__) + '/json',
              os.path.dirname(os.__file__) + '/site-packages'):
    try:
        open(place + '/new', 'wb')
        places.append(place)
    except OSError:
        pass
print(json.dumps([written, why, places]))
"""


async def test_the_disk_is_small_and_the_rest_is_read_only() -> None:
    written, why, places = await found(FILL_DISK, disk_bytes=8 * MIB)
    assert 7 * MIB < written <= 8 * MIB
    assert why == errno.ENOSPC
    assert places == ["/tmp"]
    assert await found(FILL_DISK, disk_bytes=256 * MIB) == [160 * MIB, 0, ["/tmp"]]
    assert await found(FILL_DISK, disk_bytes=0) == [0, errno.EROFS, []]


async def test_one_file_is_no_larger_than_the_disk() -> None:
    grow = "import os\nf = open('/tmp/x', 'wb')\nos.truncate(f.fileno(), 9 << 20)"
    assert b"File too large" in (await run(grow, disk_bytes=8 * MIB)).stderr
    assert (await run(grow, disk_bytes=10 * MIB)).returncode == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_ten_megabytes_of_output_are_not_kept(stream: str) -> None:
    flood = f"import sys\nfor _ in range(160): sys.{stream}.write('x' * 65536)"
    outcome = await run(flood, output_bytes=MIB)
    assert outcome.stopped_by == "output"
    assert getattr(outcome, stream) == b"x" * MIB
    whole = await run(flood, output_bytes=10 * MIB)
    assert whole == Outcome(0, **{"stdout": b"", "stderr": b"", stream: b"x" * 10 * MIB})


async def test_a_line_without_end_is_not_kept() -> None:
    async with sandbox(output_bytes=MIB).start("while True: print('x', end='')") as process:
        assert await process.read_line() == b""
        assert (await process.finish()).stopped_by == "output"


async def test_binary_garbage_is_only_bytes() -> None:
    garbage = bytes(range(256)) * 9
    outcome = await run(
        f"import os\nos.write(1, {garbage!r})\nos.write(2, b'\\xff\\x00')", b"\xff\x00"
    )
    assert outcome == Outcome(0, garbage, b"\xff\x00")


async def test_a_sleeping_child_does_not_outlive_its_program() -> None:
    marked = Marked(processes=3)
    leave = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3):
        os.close(number)
    time.sleep(1000)
os.wait()
print('left', flush=True)
"""
    async with marked.sandbox.start(leave + "input()") as process:
        assert await process.read_line() == b"left\n"
        assert marked.pids()
    assert marked.pids() == []
    outcome = await marked.sandbox.run(leave)
    assert outcome.stdout == b"left\n"
    assert marked.pids() == []


@pytest.mark.parametrize(
    ("program", "ends"),
    [
        ("def f(): return f()\nf()", 1),
        ("import ctypes; ctypes.string_at(0)", 128 + signal.SIGSEGV),
        ("import os; os.abort()", 128 + signal.SIGABRT),
        ("import os; os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
        ("def broken(:", 1),
        ("x = 'a\x00b'", 1),
        ("x = '\ud800'", 1),
    ],
)
async def test_a_crash_is_an_outcome(program: str, ends: int) -> None:
    assert (await run(program)).returncode == ends


async def test_recursion_without_a_limit_ends() -> None:
    deep = "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n  def __repr__(s): return repr(s)\n"
    assert (await run(f"{deep}repr(A())")).returncode != 0


async def test_time_is_limited_by_the_clock_and_by_the_processor() -> None:
    slept = await run("print(1, flush=True)\nimport time\ntime.sleep(1000)", wall_seconds=5)
    assert slept == Outcome(128 + signal.SIGKILL, b"1\n", b"", "wall_time")
    spun = await run(
        "import signal\nsignal.signal(24, lambda *_: 0)\nwhile True: pass", cpu_seconds=1
    )
    assert spun == Outcome(128 + signal.SIGKILL, b"", b"")
