"""What a checkpoint must be to be served and trained, as far as its files tell. Light: no torch."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from podium.core.errors import NotFoundError
from podium.local.models.configuration import config_of, unsupported
from podium.local.models.unread import is_mask
from podium.local.models.weights import INDEX, SINGLE, index_of, tensors_of, weight_files

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_ADAPTER = "adapter_config.json"
_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How classes are called whose head says what the next token is."""
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_NUMBERS = _FLOATS | {"I64", "BOOL"}
"""Types of what is no packed number: constants of a model may be whole numbers."""


def check_whole(folder: Path, name: str = "") -> None:
    """Whether the model in `folder` is all there, in files that run no code.

    Headers are read and sizes compared, no numbers.

    Args:
        name: what people call it; empty for the folder.

    Raises:
        NotFoundError: MODEL_NOT_FOUND: weights are missing or damaged.
        InvalidArgumentError: UNSUPPORTED_MODEL: they are pickles, or an adapter's, or two
            programs would read different ones.
    """
    name = name or str(folder)
    if (folder / _ADAPTER).is_file():
        raise unsupported(
            name,
            f"it holds an adapter ({_ADAPTER}), which Transformers would add to the model and vLLM"
            " would not; merge it into its base model (PEFT's merge_and_unload, save_pretrained),"
            " or remove its files",
        )
    config_of(folder)
    try:
        files = weight_files(folder)
        named = index_of(folder) if (folder / INDEX).is_file() else {}
    except ValueError as error:
        raise _incomplete(name, str(error)) from error
    if not files:
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLES)
        if pickles:
            raise unsupported(
                name,
                f"its weights are pickles ({pickles[0]}), which can run code; allowed are"
                " safetensors files, which Transformers' save_pretrained writes",
            )
    if not named and files != [folder / SINGLE]:
        raise _incomplete(name, f"it has no {SINGLE}")
    if files == [folder / SINGLE] and named and set(named.values()) != {SINGLE}:
        text = f"it has {SINGLE} and an index of other files, of which Transformers would read one"
        raise unsupported(name, f"{text} and vLLM the other; remove one of the two")
    if missing := [file.name for file in files if not file.is_file()]:
        raise _incomplete(name, f"it has no {', '.join(missing)}")
    try:
        held = tensors_of(folder)
    except (OSError, ValueError) as error:
        raise _incomplete(name, str(error)) from error
    if lacking := sorted(named.keys() - held.keys()):
        raise _incomplete(name, f"{named[lacking[0]]} lacks {lacking[0]}, which its index names")


def causal_kinds() -> Collection[str]:
    """Kinds of models of which the installed Transformers computes next tokens; loads it."""
    from transformers.models.auto import modeling_auto

    kinds: Collection[str] = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return kinds


def untrainable(folder: Path, kinds: Collection[str]) -> str:
    """Why no job can train on the whole model in `folder`; empty where nothing speaks against it.

    What only the model itself can tell, when it has been loaded, is not asked here.

    Args:
        kinds: that Transformers has, see `causal_kinds`.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: see `config_of`.
    """
    config = config_of(folder)
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if (how := part.get(key)) is not None:
                method = how.get("quant_method") if isinstance(how, dict) else how
                return _quantised(f"{key} of config.json says {method!r}")
    for name, tensor in sorted(tensors_of(folder).items()):
        # Masks are whole bytes in files of older Transformers; so are packed numbers.
        if tensor.dtype not in _NUMBERS and not is_mask(name):
            return _quantised(f"{name} is of type {tensor.dtype}")
    if config.get("is_encoder_decoder"):
        return "it is an encoder with a decoder; allowed are causal language models"
    if (kind := config.get("model_type")) not in kinds:
        own = "; it brings code of its own (auto_map), which Podium never runs"
        return (
            f"Transformers has no causal language model of kind {kind!r}"
            f"{own if 'auto_map' in config else ''}; allowed are kinds that it has"
        )
    classes = config.get("architectures")
    if isinstance(classes, list) and classes:
        names = [str(each) for each in classes]
        if not any(name.endswith(_GENERATES) for name in names):
            return (
                f"it is a {', '.join(names)} by its config.json, whose head says no next token;"
                " allowed is a causal language model (…ForCausalLM)"
            )
    return ""


def _quantised(why: str) -> str:
    return (
        f"its weights are quantised ({why}), and what trains is added to numbers as they are;"
        " allowed are weights in bfloat16, float16 or float32, such as the model that it was"
        " made from"
    )


def _incomplete(name: str, why: str) -> NotFoundError:
    return NotFoundError(
        f"{name} is not a whole model: {why}. Copy what is missing, or remove the folder and the"
        " model is fetched",
        reason="MODEL_NOT_FOUND",
    )
