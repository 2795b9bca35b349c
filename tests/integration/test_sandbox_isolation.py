"""What a program in the sandbox cannot see, reach or change."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from support.namespaces import needs_namespaces
from support.sandboxed import Marked, found, outside, read, run

pytestmark = needs_namespaces


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
