"""`podium checkpoint list|get|export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.completers import complete_jobs
from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import emit_list, emit_one, note, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.group(short_help="List and export trained versions.")
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


@checkpoint.command("export")
@click.argument("version", metavar="JOB[@VERSION]", shell_complete=complete_jobs)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--merged", is_flag=True, help="Write whole weights, the adapter merged into them.")
@connected
async def export(client: AsyncClient, version: str, folder: Path, merged: bool) -> None:
    """Write a version into FOLDER, which must be empty or new.

    Without --merged it is a PEFT adapter. With it, a model that Transformers
    and vLLM load as it is, tokenizer included; needs the base model here. What
    full fine-tuning made is such a model already.
    """
    from podium.registry.v1 import registry_service_pb2 as pb

    model, which = parse(version)
    _check_empty(folder)
    item = await client.checkpoints.get(model, which)
    name = f"{item.manifest.model}@{item.manifest.version}"
    if item.manifest.kind == pb.VERSION_KIND_FULL:
        await client.checkpoints.download(item, folder, "model/")
    elif merged:
        import asyncio
        import tempfile

        from podium.cli.merge import merge

        with tempfile.TemporaryDirectory() as scratch:
            adapter = Path(scratch) / "adapter"
            await client.checkpoints.download(item, adapter, "adapter/")
            note(f"merging {name} into {item.manifest.base_model}")
            await asyncio.to_thread(merge, item.manifest, adapter, folder)
    else:
        await client.checkpoints.download(item, folder, "adapter/")
        name_the_base(folder / "adapter_config.json")
    share(folder)
    note(f"wrote {name} to {folder}")
    click.echo(str(folder))


def name_the_base(config: Path) -> None:
    """Has PEFT's configuration name the base model as the Hugging Face hub does, where it is known.

    Other programs look it up there by that name.
    """
    import json

    from podium.local.models import HUB_NAMES

    if not config.exists():
        return
    found = json.loads(config.read_text())
    name = found.get("base_model_name_or_path", "")
    if name in HUB_NAMES:
        found["base_model_name_or_path"] = HUB_NAMES[name]
        config.write_text(json.dumps(found, indent=2) + "\n")


def share(folder: Path) -> None:
    """Gives files and folders the modes of newly made ones: some libraries write private files."""
    import os

    mask = os.umask(0)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _check_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise CliError(f"{folder} is not empty", "Name a new folder.", Exit.CONFLICT)


def parse(text: str) -> tuple[str, int | str]:
    """Splits `job@3`, `job@best` or `job`; without a version it is `latest`."""
    model, _, which = text.partition("@")
    if not model:
        raise CliError(f"{text!r} names no job", "For example my-job@12.", Exit.USAGE)
    return model, int(which) if which.isdigit() else which or "latest"
