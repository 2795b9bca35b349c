"""Hostile programs in the real sandbox, and that the same would work outside of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from pathlib import Path

import pytest
from podium.environments.sandbox import Outcome
from support.namespaces import needs_namespaces
from support.sandboxed import MIB, Marked, found, outside, read, run, sandbox
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
    marked = Marked(processes=5, wall_seconds=3)
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


CONNECT = """
import json, socket, sys
reached = {}
for name, family, address in json.loads(sys.stdin.read() or sys.argv[1]):
    try:
        with socket.socket(getattr(socket, family)) as s:
            s.settimeout(5)
            s.connect(tuple(address) if isinstance(address, list) else address)
        reached[name] = ''
    except OSError as error:
        reached[name] = type(error).__name__
print(json.dumps(reached))
"""


async def test_nothing_of_the_network_is_reached(tmp_path: Path) -> None:
    abstract = f"\0podium-{os.getpid()}"
    path = f"{tmp_path}/socket"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as nameless,
    ):
        named.bind(path)
        nameless.bind(abstract)
        for listener in (named, nameless):
            listener.listen()
        wanted = json.dumps(
            [
                ("tcp", "AF_INET", tcp.getsockname()),
                ("named", "AF_UNIX", path),
                ("abstract", "AF_UNIX", abstract),
            ]
        )
        free = outside(CONNECT, wanted)
        inside = await run(CONNECT, wanted.encode())
    assert free == {"tcp": "", "named": "", "abstract": ""}
    assert json.loads(inside.stdout) == {
        "tcp": "PermissionError",
        "named": "FileNotFoundError",
        "abstract": "ConnectionRefusedError",
    }


async def test_only_local_sockets_can_be_made() -> None:
    made = await found("""
import json, socket
made = []
for name in dir(socket):
    if name.startswith('AF_'):
        try:
            socket.socket(getattr(socket, name), socket.SOCK_DGRAM).close()
            made.append(name)
        except OSError:
            pass
print(json.dumps(made))
""")
    assert made == ["AF_UNIX"]


async def test_every_namespace_is_its_own() -> None:
    marked = Marked()
    async with marked.sandbox.start("print(1, flush=True)\ninput()") as process:
        await process.read_line()
        deepest = max(marked.pids())
        for kind in ("user", "pid", "ipc", "uts", "net", "mnt", "cgroup"):
            inside = os.readlink(f"/proc/{deepest}/ns/{kind}")
            assert inside != os.readlink(f"/proc/self/ns/{kind}"), kind
        status = read(Path(f"/proc/{deepest}/status")).decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert fields["Uid"].split()[0] != "0"


LOOK_AROUND = """
import json, os, sys
wanted, secret = json.loads(sys.stdin.read() or sys.argv[1])
read = []
for path in wanted:
    try:
        read.append(open(path, 'rb').read().decode(errors='replace'))
    except OSError:
        pass
kept = []
for number in range(200):
    try:
        os.fstat(number)
        kept.append(number)
    except OSError:
        pass
files = [name for _, _, names in os.walk('/') for name in names]
print(json.dumps({
    'read': secret in repr(read),
    'environment': secret in repr(os.environ),
    'names': sorted(os.environ),
    'found': [name for name in files if secret in name or name == 'passwd'],
    'library': 'argparse.py' in files,
    'kept': kept,
}))
"""


async def test_no_secret_of_the_parent_is_in_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"secret{os.getpid()}"
    monkeypatch.setenv("PODIUM_SECRET", secret)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{secret}.txt").write_text(secret)
    wanted = json.dumps(
        [
            [
                str(tmp_path / f"{secret}.txt"),
                f"{secret}.txt",
                f"/proc/{os.getpid()}/environ",
                f"/proc/{os.getpid()}/cwd/{secret}.txt",
                "/proc/self/environ",
                "/proc/1/environ",
                os.path.join("/proc/1/root", "etc/passwd"),
            ],
            secret,
        ]
    )
    # The first file, and no walk through this machine.
    walk_less = LOOK_AROUND.replace("os.walk('/')", f"os.walk({str(tmp_path)!r})")
    seen = outside(walk_less, wanted)
    assert seen["read"]
    assert seen["environment"]
    assert seen["found"]
    outcome = await run(LOOK_AROUND, wanted.encode())
    assert json.loads(outcome.stdout) == {
        "read": False,
        "environment": False,
        "names": ["HOME", "LANG", "LD_LIBRARY_PATH", "PWD", "PYTHONHASHSEED"],
        "found": [],
        "library": True,
        "kept": [0, 1, 2],
    }


async def test_symlinks_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    follow = f"""
import json, os
read = []
for number, target in enumerate([{str(secret)!r}, '/etc/passwd', '/proc/self/environ',
                                 '../../../../..{secret}', '/python/../../etc/hostname']):
    os.symlink(target, '/tmp/%d' % number)
    try:
        read.append(open('/tmp/%d' % number).read())
    except OSError:
        pass
os.symlink('/python', '/tmp/door')
try:
    open('/tmp/door/bin/new', 'w')
    read.append('written')
except OSError:
    pass
os.symlink('/tmp/file', '/tmp/good')
open('/tmp/file', 'w').write('good')
read.append(open('/tmp/good').read())
print(json.dumps(read))
"""
    assert await found(follow) == ["good"]


async def test_only_the_standard_library_can_be_imported() -> None:
    import pydantic

    assert pydantic
    for name in ("podium", "pydantic", "pip"):
        assert b"ModuleNotFoundError" in (await run(f"import {name}")).stderr
    assert (await run("import ctypes, decimal, sqlite3, json, re, asyncio")).returncode == 0


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
    slept = await run("print(1, flush=True)\nimport time\ntime.sleep(1000)", wall_seconds=2)
    assert slept == Outcome(128 + signal.SIGKILL, b"1\n", b"", "wall_time")
    spun = await run(
        "import signal\nsignal.signal(24, lambda *_: 0)\nwhile True: pass", cpu_seconds=1
    )
    assert spun == Outcome(128 + signal.SIGKILL, b"", b"")


async def test_limits_cannot_be_raised_nor_the_sandbox_left() -> None:
    tried = await found(f"""
import ctypes, json, os, resource
libc = ctypes.CDLL(None, use_errno=True)
done = []
def attempt(name, call):
    try:
        if call() != -1:
            done.append(name)
    except (OSError, ValueError):
        pass
for name in ('AS', 'NPROC', 'CPU', 'FSIZE', 'NOFILE', 'CORE'):
    kind = getattr(resource, 'RLIMIT_' + name)
    attempt(name, lambda: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2))
attempt('root', lambda: os.setuid(0))
attempt('namespace', lambda: libc.unshare({0x10000000}))
attempt('mount', lambda: libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))
attempt('trace', lambda: libc.ptrace(16, 1, 0, 0))
attempt('chroot', lambda: os.chroot('/tmp'))
attempt('signal', lambda: os.kill({os.getpid()}, 0))
attempt('device', lambda: os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)))
attempt('host name', lambda: libc.sethostname(b'x', 1))
attempt('parent', lambda: os.kill(1, 9))
print(json.dumps(done))
""")
    # The kernel drops that signal: process 1 of a namespace cannot be killed from inside.
    assert tried == ["parent"]
