"""`podium scorer serve`."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import click

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.group(short_help="Serve a function that scores a job's episodes.")
def scorer() -> None:
    """Scorers of your own, which a job names in its reward."""


@scorer.command()
@click.argument("path")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=50090,
    show_default=True,
    help="HTTP port; 0 for a free one.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Groups that are scored at once, each in a process of its own.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for one group. Whoever takes longer is ended, and the group is skipped.",
)
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of a key that callers must show; a job names the judge service's variable with it "
    "in api_key_env. [default: no key]",
)
def serve(
    path: str, host: str, port: int, processes: int, timeout: float, key_file: Path | None
) -> None:
    """Serve PATH (package.module:function) until SIGTERM.

    The function takes a scenario and the attempts at it, and returns a score for each: a number,
    None for one that cannot be scored, or either with a text, (0.5, "why"). It may be async. What
    it raises, a score that is not finite, and a wrong number of them cost that group and are told
    in the job's events; what it prints goes to stderr.

    Modules of this folder can be imported.
    """
    from podium.scorers.answers import ScorerFailedError
    from podium.scorers.server import scorer_server
    from podium.scorers.workers import ScorerWorkers

    key = key_file.read_text(encoding="utf-8").strip() if key_file else ""
    if key_file and not key:
        raise click.UsageError(f"{key_file} is empty; allowed is a file with a key")
    try:
        workers = ScorerWorkers(path, processes, timeout)
    except ScorerFailedError as error:
        raise click.UsageError(str(error)) from error
    try:
        server = scorer_server(host, port, workers, key)
    except OSError as error:
        workers.end()
        raise click.UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    address = f"[{host}]" if ":" in host else host
    click.echo(f"{path} scores at http://{address}:{server.server_address[1]}")
    for each in _SIGNALS:
        signal.signal(each, _end)
    try:
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    finally:
        server.server_close()
        workers.end()


def _end(*_: object) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
