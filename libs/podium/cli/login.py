"""`podium login`: saves an installation, once it has answered."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.context import token_source, where
from podium.cli.exits import CliError, Exit
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.sdk.connection.contexts import Context


@click.command(short_help="Save an installation to work with.")
@click.argument("name")
@click.option("--address", metavar="HOST:PORT", default="", help="The controller's address.")
@click.option("--registry-address", metavar="HOST:PORT", default="", help="The registry's.")
@click.option("--inference-address", metavar="HOST:PORT", default="", help="A pool's.")
@click.option("--rollout-address", metavar="HOST:PORT", default="", help="The rollout service's.")
@click.option("--judge-address", metavar="HOST:PORT", default="", help="The judge's.")
@click.option("--release", metavar="NAME", help="A release of the chart. [default: podium]")
@click.option("--namespace", "-n", metavar="NAME", help="Its namespace. [default: podium]")
@click.option(
    "--kube-context",
    metavar="NAME",
    help="Its cluster, as the kubeconfig calls it. [default: kubectl's current one, by name]",
)
@click.option("--pool", metavar="NAME", help="Its pool. [default: the one that serves jobs]")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the token, read at each use.",
)
@click.option("--token-env", metavar="VARIABLE", default="", help="Variable with the token.")
@click.option(
    "--token-stdin", is_flag=True, help="Read the token from stdin, and keep it for yourself alone."
)
@click.option(
    "--tls-certificate",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Your certificate, PEM, for mutual TLS. [default: PODIUM_TLS_CERTIFICATE_FILE]",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Its key. [default: PODIUM_TLS_KEY_FILE]",
)
@click.option(
    "--tls-authorities",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Whose certificates to take. [default: PODIUM_TLS_AUTHORITIES_FILE]",
)
@click.option(
    "--tls-server-name",
    default="",
    metavar="NAME",
    help="Whose certificate it must be. [default: PODIUM_TLS_SERVER_NAME, else the address' host, "
    "else localhost]",
)
@click.option("--no-use", is_flag=True, help="Save it, but go on using the present one.")
def login(
    name: str,
    address: str,
    registry_address: str,
    inference_address: str,
    rollout_address: str,
    judge_address: str,
    release: str | None,
    namespace: str | None,
    kube_context: str | None,
    pool: str | None,
    token_file: Path | None,
    token_env: str,
    token_stdin: bool,
    tls_certificate: Path | None,
    tls_key: Path | None,
    tls_authorities: Path | None,
    tls_server_name: str,
    no_use: bool,
) -> None:
    """Save an installation as NAME, and use it from now on.

    Without an address it is a release of the chart: its services are reached through the API
    server with 'kubectl port-forward', and the token is that of the release's Secret, read at each
    use. With addresses and a release, the release leads to what has no address.

    The controller is asked first, with the token. Nothing is saved if it cannot be reached or
    refuses. A token that is asked for at the terminal, or comes from stdin, is kept in a file that
    you alone may read. Of the files for TLS the paths are saved; they are read at each use.
    """
    from podium.core.errors import UnauthenticatedError
    from podium.sdk.connection import contexts

    contexts.check_name(name)
    saved = contexts.load()
    if sum((token_file is not None, bool(token_env), token_stdin)) > 1:
        raise click.UsageError("name one of --token-file, --token-env and --token-stdin")
    addresses = {
        "controller": address,
        "registry": registry_address,
        "inference": inference_address,
        "rollout": rollout_address,
        "judge": judge_address,
    }
    release_options = {"release": release, "namespace": namespace, "pool": pool}
    chosen = {key: value for key, value in release_options.items() if value}
    kubernetes = None
    if chosen or kube_context or not address:
        kubernetes = {"context": kube_context or asyncio.run(_kube_context()), **chosen}
    made: Context = contexts.checked(
        contexts.Context,
        {
            "addresses": {key: value for key, value in addresses.items() if value},
            "kubernetes": kubernetes,
            "tls": _tls(tls_certificate, tls_key, tls_authorities, tls_server_name),
            "token_env": token_env,
            "token_file": str(token_file.absolute()) if token_file else "",
        },
    )
    token = _from_stdin() if token_stdin else made.token(name)
    try:
        _check(name, made, token)
    except UnauthenticatedError:
        referred = token or token_env or token_file
        if referred or made.kubernetes or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        token = click.prompt("token", hide_input=True, err=True).strip()
        _check(name, made, token)
        token_stdin = True
    if token_stdin:
        made = made.model_copy(update={"token_file": contexts.keep_token(name, token)})
    else:
        contexts.forget_token(name)
    contexts.save(
        contexts.Contexts(
            current=saved.current if no_use else name, contexts={**saved.contexts, name: made}
        )
    )
    note(f"saved {name}: {where(made)}, token from {token_source(made)}")
    if not no_use:
        note("it is in use; 'podium context use' chooses another")
    for variable in ("PODIUM_ADDRESS", "PODIUM_CONTEXT"):
        if value := os.environ.get(variable, ""):
            note(f"{variable}={value} goes before it")


def _tls(
    certificate: Path | None, key: Path | None, authorities: Path | None, server_name: str
) -> dict[str, str] | None:
    """The files that are given, else those of the environment, as a context has them."""
    from podium.sdk.connection.addresses import SERVER_NAME, tls_files

    given = {"certificate": certificate, "key": key, "authorities": authorities}
    if any(given.values()):
        missing = [f"--tls-{name}" for name, file in given.items() if file is None]
        if missing:
            raise click.UsageError(f"TLS needs {', '.join(missing)} too")
        files = {f"{name}_file": str(file) for name, file in given.items()}
    else:
        files = tls_files()
    server_name = server_name or os.environ.get(SERVER_NAME, "")
    if not files:
        if server_name:
            raise click.UsageError("a server name for TLS is of no use without its files")
        return None
    return {
        **{name: str(Path(file).absolute()) for name, file in files.items()},
        "server_name": server_name,
    }


def _from_stdin() -> str:
    token = sys.stdin.readline().strip()
    if not token:
        raise CliError("there is no token on stdin", code=Exit.USAGE)
    return token


async def _kube_context() -> str:
    """The one that kubectl uses now: pinned, so that it means the same cluster tomorrow."""
    from podium.sdk.connection.kubectl import Kubectl

    return (await Kubectl().run("config", "current-context")).strip()


def _check(name: str, made: Context, token: str) -> None:
    """Asks the controller for a job, with the token and without what the environment says."""
    from podium.sdk.client import AsyncClient
    from podium.sdk.connection.addresses import of_context

    async def ask() -> None:
        async with AsyncClient(of_context(name, made, token)) as client:
            async for _ in client.jobs.list():
                return

    asyncio.run(ask())
