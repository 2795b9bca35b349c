"""`podium checkpoint list|get|export|push|load`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from podium.cli.completers import complete_jobs
from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import emit_list, emit_one, note, output_option

if TYPE_CHECKING:
    from podium.registry.v1 import registry_service_pb2 as registry_pb2
    from podium.sdk import AsyncClient


@click.group(short_help="List, export, push and load trained versions.")
def checkpoint() -> None:
    """The versions that jobs have published. Version n is the policy after step n."""


@checkpoint.command("list")
@click.argument("job", required=False, shell_complete=complete_jobs)
@output_option
@connected
async def list_checkpoints(client: AsyncClient, job: str | None, output: str) -> None:
    """List the models, or the versions of one JOB, newest first."""
    from podium.cli.views import MODELS, VERSIONS

    if job is None:
        emit_list([model async for model in client.checkpoints.models()], MODELS, output)
    else:
        emit_list([item async for item in client.checkpoints.list(job)], VERSIONS, output)


@checkpoint.command("get")
@click.argument("version", metavar="JOB[@VERSION]", shell_complete=complete_jobs)
@output_option
@connected
async def get_checkpoint(client: AsyncClient, version: str, output: str) -> None:
    """Show one version, by number or alias (latest, best); the default is latest."""
    from podium.cli.views import VERSIONS

    model, which = parse(version)
    emit_one(await client.checkpoints.get(model, which), VERSIONS, output)


_merged = click.option(
    "--merged", is_flag=True, help="Write whole weights, the adapter merged into them."
)
_gguf = click.option("--gguf", is_flag=True, help="Write whole weights as one GGUF file.")


@checkpoint.command("export")
@click.argument("version", metavar="JOB[@VERSION]", shell_complete=complete_jobs)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@_merged
@_gguf
@connected
async def export(client: AsyncClient, version: str, folder: Path, merged: bool, gguf: bool) -> None:
    """Write a version into FOLDER, which must be empty or new.

    Without an option it is a PEFT adapter. With --merged it is a model that
    Transformers and vLLM load as it is, tokenizer included, and with --gguf one
    file for llama.cpp and Ollama; both need the base model here. What full
    fine-tuning made is such a model already.
    """
    from podium.cli.checkpoint_files import form_of, name_of, write

    model, which = parse(version)
    _check_empty(folder)
    item = await client.checkpoints.get(model, which)
    await write(client, item, folder, form_of(merged, gguf))
    note(f"wrote {name_of(item)} to {folder}")
    click.echo(str(folder))


@checkpoint.command("push")
@click.argument("version", metavar="JOB[@VERSION]", shell_complete=complete_jobs)
@click.argument("repository", metavar="OWNER/NAME")
@_merged
@_gguf
@click.option("--private", is_flag=True, help="Make the repository private, if it is made now.")
@click.option("--revision", help="Branch to write to, made if it is not there.")
@connected
async def push_checkpoint(
    client: AsyncClient,
    version: str,
    repository: str,
    merged: bool,
    gguf: bool,
    private: bool,
    revision: str | None,
) -> None:
    """Write a version to OWNER/NAME on the Hugging Face hub, with a card.

    The files are those of export. The hub's own settings hold: HF_TOKEN or
    `hf auth login` for who you are, HF_ENDPOINT for another hub.
    """
    import asyncio
    import tempfile

    from podium.cli.checkpoint_files import form_of, name_of, write
    from podium.cli.hub import card, push

    model, which = parse(version)
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise CliError(f"{repository!r} is no OWNER/NAME", "For example me/my-agent.", Exit.USAGE)
    form = form_of(merged, gguf)
    item = await client.checkpoints.get(model, which)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "files"
        await write(client, item, folder, form)
        (folder / "README.md").write_text(card(item, form, repository), encoding="utf-8")
        note(f"sending {name_of(item)} to {repository}")
        made = await asyncio.to_thread(push, folder, repository, revision, private, name_of(item))
    click.echo(made)


@checkpoint.command("load")
@click.argument("version", metavar="JOB[@VERSION]", shell_complete=complete_jobs)
@click.argument("url")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="What the server calls it.  [default: JOB@VERSION]")
@click.option(
    "--server-path",
    metavar="PATH",
    help="FOLDER as the server sees it, such as a mount of its own.  [default: FOLDER, absolute]",
)
@click.option("--replace", is_flag=True, help="Replace an adapter that has this name there.")
@click.option(
    "--key-env",
    metavar="VARIABLE",
    default="",
    help="Variable with the server's key.  [default: no key is sent]",
)
@connected
async def load_checkpoint(
    client: AsyncClient,
    version: str,
    url: str,
    folder: Path,
    name: str | None,
    server_path: str | None,
    replace: bool,
    key_env: str,
) -> None:
    """Load a version's adapter into the vLLM server at URL, which somebody else runs.

    The adapter is written into FOLDER, which must be empty or new and which the
    server reads too. The server needs --enable-lora and, in its environment,
    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.
    """
    import httpx

    from podium.chat import Transport
    from podium.cli.checkpoint_files import FileFormat, name_of, write
    from podium.cli.foreign_vllm import LOAD_SECONDS, ForeignServer, api_of, key_of

    model, which = parse(version)
    base, key = api_of(url), key_of(key_env)
    where = _as_server_sees(server_path, folder)
    item = await client.checkpoints.get(model, which)
    chosen = name or name_of(item)
    async with httpx.AsyncClient(timeout=LOAD_SECONDS, transport=Transport("server")) as connection:
        server = ForeignServer(connection, base, key)
        # Before anything is written: most mistakes are in the address and the key.
        parents = [each["id"] for each in await server.models() if not each.get("parent")]
        _check_adapter(item, base)
        _check_empty(folder)
        await write(client, item, folder, FileFormat.ADAPTER)
        await server.load(chosen, where, replace=replace)
    note(f"{base} serves {name_of(item)}, beside {', '.join(parents)}, from {where}")
    click.echo(chosen)


def _check_adapter(item: registry_pb2.Version, base: str) -> None:
    from podium.cli.checkpoint_files import name_of
    from podium.registry.v1 import registry_service_pb2 as pb

    if item.manifest.kind == pb.VERSION_KIND_FULL:
        raise CliError(
            f"{name_of(item)} is a whole model and no adapter, which {base} could load",
            "Export it, and start a server with the folder.",
            Exit.CONFLICT,
        )


def _as_server_sees(path: str | None, folder: Path) -> PurePosixPath:
    if path is None:
        return PurePosixPath(folder.resolve())
    if not PurePosixPath(path).is_absolute():
        raise CliError(
            f"--server-path: got {path!r}; allowed is an absolute path",
            "It is the folder on the server's machine.",
            Exit.USAGE,
        )
    return PurePosixPath(path)


def _check_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise CliError(f"{folder} is not empty", "Name a new folder.", Exit.CONFLICT)


def parse(text: str) -> tuple[str, int | str]:
    """Splits `job@3`, `job@best` or `job`; without a version it is `latest`."""
    model, _, which = text.partition("@")
    if not model:
        raise CliError(f"{text!r} names no job", "For example my-job@12.", Exit.USAGE)
    return model, int(which) if which.isdigit() else which or "latest"
