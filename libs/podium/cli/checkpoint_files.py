"""The files of a version as others load them: an adapter, a whole model, or one GGUF file."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from podium.cli.output import note
from podium.core.errors import FailedPreconditionError

if TYPE_CHECKING:
    from podium.registry.v1 import registry_service_pb2 as pb
    from podium.sdk import AsyncClient


class FileFormat(Enum):
    """What is written."""

    ADAPTER = "adapter"
    """PEFT's layout; of full fine-tuning, which has no adapter, the whole model."""
    MERGED = "merged"
    """A model that Transformers and vLLM load as it is."""
    GGUF = "gguf"
    """One file for llama.cpp and what is built on it."""


def form_of(merged: bool, gguf: bool) -> FileFormat:
    """The form that the options of a command ask for."""
    return FileFormat.GGUF if gguf else FileFormat.MERGED if merged else FileFormat.ADAPTER


async def write(client: AsyncClient, item: pb.Version, folder: Path, form: FileFormat) -> None:
    """Writes a version into `folder`, which must not exist or be empty.

    Raises:
        FailedPreconditionError: the base model here is another one, a package is missing, or
            the model is of a kind that has no GGUF.
        NotFoundError: the base model is not here.
    """
    if form is FileFormat.GGUF:
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "model"
            await _write_model(client, item, model)
            await asyncio.to_thread(_write_gguf, item.manifest, model, folder)
    elif form is FileFormat.MERGED or _is_whole(item):
        await _write_model(client, item, folder)
    else:
        await client.checkpoints.download(item, folder, "adapter/")
        name_the_base(folder / "adapter_config.json")
    share(folder)


def _is_whole(item: pb.Version) -> bool:
    from podium.registry.v1 import registry_service_pb2 as pb

    return item.manifest.kind == pb.VERSION_KIND_FULL


async def _write_model(client: AsyncClient, item: pb.Version, folder: Path) -> None:
    if _is_whole(item):
        await client.checkpoints.download(item, folder, "model/")
        return
    from podium.cli.merge import merge

    with tempfile.TemporaryDirectory() as scratch:
        adapter = Path(scratch) / "adapter"
        await client.checkpoints.download(item, adapter, "adapter/")
        note(f"merging {name_of(item)} into {item.manifest.base_model}")
        await asyncio.to_thread(merge, item.manifest, adapter, folder)


def _write_gguf(manifest: pb.Manifest, model: Path, folder: Path) -> None:
    from podium.cli.gguf_file import write_gguf

    missing = [name for name in ("config.json", "tokenizer.json") if not (model / name).exists()]
    if missing:
        raise FailedPreconditionError(
            f"{manifest.model}@{manifest.version} has no {missing[0]}, of which a GGUF is made",
            reason="GGUF_UNSUPPORTED",
        )
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{manifest.model}-{manifest.version}"
    write_gguf(model, folder / f"{name}.gguf", name)


def name_of(item: pb.Version) -> str:
    """`MODEL@VERSION`."""
    return f"{item.manifest.model}@{item.manifest.version}"


def name_the_base(config: Path) -> None:
    """Has PEFT's configuration name the base model as the Hugging Face hub does, where it is known.

    Other programs look it up there by that name.
    """
    from podium.local.models import HUB_NAMES

    if not config.exists():
        return
    found = json.loads(config.read_text(encoding="utf-8"))
    name = found.get("base_model_name_or_path", "")
    if name in HUB_NAMES:
        found["base_model_name_or_path"] = HUB_NAMES[name]
        config.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def share(folder: Path) -> None:
    """Gives files and folders the modes of newly made ones: some libraries write private files."""
    mask = os.umask(0)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
