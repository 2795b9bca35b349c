"""The start script of the chart's PostgreSQL, with the real server in a container of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chart_golden import render
from support.chart_pods import pods
from support.namespaces import needs_namespaces
from support.postgres import programs

SCRIPT = Path(__file__).parents[2] / "charts" / "podium" / "files" / "postgresql.sh"

# A user that is not root and has a name everywhere, and one that has none, as OpenShift gives.
NOBODY, NAMELESS = "65534", "1000680000"
WRAPPERS = [*Path("/usr/lib").glob("*/libnss_wrapper.so")]
STARTED = """
sh /tmp/start.sh > /tmp/log 2>&1 &
server=$!
until pg_isready -q -h 127.0.0.1 -U podium; do
  kill -0 "$server" 2> /dev/null || { cat /tmp/log >&2; exit 1; }
  sleep 0.1
done
"""
# As a chart of before made its volume: a password on the socket too.
OLDER = """
initdb -D "$PGDATA" --username podium --auth scram-sha-256 --pwfile /dev/stdin > /tmp/log <<< secret
"""
DUMP = "pg_dumpall --host /tmp --username podium --no-password"


def contained(
    script: str, *, user: str = NOBODY, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs a script as an ordinary user, with /tmp, /data and a network that nobody else has."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--uid", user, "--gid", user]
    command += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    command += ["--tmpfs", "/tmp", "--tmpfs", "/run", "--ro-bind", str(SCRIPT), "/tmp/start.sh"]
    command += ["--clearenv", "--setenv", "PATH", f"{programs()}:/usr/bin:/bin"]
    command += ["--setenv", "PGDATA", "/run/pgdata", "--setenv", "PODIUM_PASSWORD", "secret"]
    return subprocess.run(
        [*command, "bash", "-euc", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@needs_namespaces
@pytest.mark.parametrize("before", ["", OLDER], ids=["new", "of a chart before"])
def test_a_dump_needs_no_password_inside_the_container(before: str) -> None:
    done = contained(f"{before}{STARTED}{DUMP}")
    assert done.returncode == 0, done.stderr
    assert "CREATE ROLE podium" in done.stdout


@needs_namespaces
@pytest.mark.skipif(not WRAPPERS, reason="no libnss-wrapper; the image has it")
def test_a_user_without_a_name_starts_it() -> None:
    done = contained(f"{STARTED}{DUMP}", user=NAMELESS)
    assert done.returncode == 0, done.stderr


@needs_namespaces
def test_a_user_without_a_name_may_ask_whether_it_is_ready() -> None:
    (pod,) = (pod for pod in pods(render()) if pod.component == "postgresql")
    (container,) = pod.spec["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        command = " ".join(container[probe]["exec"]["command"])
        done = contained(f"{command} && echo || echo $?", user=NAMELESS)
        # 2: nobody answers. 3: it did not ask.
        assert done.stdout == "2\n", done.stderr


@needs_namespaces
def test_over_the_network_a_password_is_asked_for() -> None:
    done = contained(f"{STARTED}psql -h 127.0.0.1 -U podium -w -c 'select 1' postgres")
    assert done.returncode == 2
    assert "no password supplied" in done.stderr
    done = contained(f"{STARTED}PGPASSWORD=secret psql -h 127.0.0.1 -U podium -l -A postgres")
    assert done.returncode == 0, done.stderr
    assert {"podium_controller", "podium_registry"} <= {
        line.split("|")[0] for line in done.stdout.splitlines()
    }
