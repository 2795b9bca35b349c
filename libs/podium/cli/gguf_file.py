"""A whole model as one GGUF file, which llama.cpp, Ollama and LM Studio load. Imports gguf.

Written are models of Llama's, Mistral's, Qwen2's and Qwen3's making with a byte-level BPE
tokenizer; for others llama.cpp has a converter of its own, which reads the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from podium.core.errors import FailedPreconditionError
from podium.core.packages import needed
from podium.local.models import config_of, weight_files, whole_config

REQUIREMENT = "gguf>=0.19"
_FAMILIES = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}
# How llama.cpp calls the ways to cut words before BPE, by what tokenizer.json says of them.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_SPLITS = {_QWEN2: "qwen2", _LLAMA3: "llama-bpe"}


def write_gguf(model: Path, target: Path, name: str) -> None:
    """Writes the Transformers model in the folder `model` to the file `target`.

    Matrices keep their type, bfloat16, float16 or float32; vectors are float32, as llama.cpp
    has them. llama.cpp's own `llama-quantize` makes smaller files of it.

    Raises:
        FailedPreconditionError: `gguf` is not installed, or the model is of a kind that is
            not written here; the message names what it is and what is allowed.
    """
    gguf = needed("gguf", REQUIREMENT, "--gguf")
    given = config_of(model)
    tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    architecture, file_type = _architecture(gguf, given), _file_type(gguf, given)
    config = _whole(model)
    pre_tokenizer = _pre_tokenizer(tokenizer)
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[architecture], use_temp_file=True)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    _add_shape(writer, config)
    writer.add_file_type(file_type)
    _add_tokenizer(gguf, writer, model, tokenizer, pre_tokenizer, int(config["vocab_size"]))
    _add_tensors(gguf, writer, model, config, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _refusal(what: str, got: object, allowed: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"a model whose {what} is {got!r} is not written as GGUF; allowed is {allowed}. "
        "llama.cpp's convert_hf_to_gguf.py may know it: give it the folder of --merged",
        reason="GGUF_UNSUPPORTED",
    )


def _architecture(gguf: Any, config: Mapping[str, Any]) -> Any:
    family = config.get("model_type")
    if family not in _FAMILIES:
        raise _refusal("model_type", family, ", ".join(sorted(_FAMILIES)))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise _refusal("rope_type", kind, "default")
    return gguf.MODEL_ARCH[_FAMILIES[family]]


def _whole(model: Path) -> dict[str, Any]:
    """What Transformers makes of the file: windows and sizes of heads have defaults by class."""
    config = whole_config(model)
    # Llama has none, whatever its file says; Qwen's is none where `use_sliding_window` is false.
    if config["model_type"] != "llama" and config.get("sliding_window"):
        raise _refusal("attention", "a sliding window", "attention to all that came before")
    return config


def _pre_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name for how the tokenizer cuts words.

    Raises:
        FailedPreconditionError: it has none.
    """
    if tokenizer["model"].get("type") != "BPE" or tokenizer["model"].get("byte_fallback"):
        raise _refusal("tokenizer", tokenizer["model"].get("type"), "byte-level BPE")
    found = tokenizer.get("pre_tokenizer") or {}
    steps = found.get("pretokenizers", [found])
    kinds = [step.get("type") for step in steps]
    if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"]:
        return "smollm"
    if kinds == ["Split", "ByteLevel"] and steps[0]["pattern"].get("Regex") in _SPLITS:
        return _SPLITS[steps[0]["pattern"]["Regex"]]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return "gpt-2"
    raise _refusal("pre_tokenizer", kinds, "that of SmolLM, Qwen2, Llama 3 or GPT-2")


def _add_shape(writer: Any, config: Mapping[str, Any]) -> None:
    heads = int(config["num_attention_heads"])
    head = int(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _dtype(config: Mapping[str, Any]) -> str:
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")


def _file_type(gguf: Any, config: Mapping[str, Any]) -> Any:
    types = {"bfloat16": "MOSTLY_BF16", "float16": "MOSTLY_F16", "float32": "ALL_F32"}
    if _dtype(config) not in types:
        raise _refusal("dtype", _dtype(config), ", ".join(types))
    return gguf.LlamaFileType[types[_dtype(config)]]


def _add_tokenizer(
    gguf: Any, writer: Any, model: Path, tokenizer: Mapping[str, Any], pre: str, size: int
) -> None:
    kinds = gguf.TokenType
    # Rows of the embedding that no token has, to the end of which models are often padded.
    tokens = [f"[PAD{number}]" for number in range(size)]
    types = [kinds.UNUSED] * size
    for token, number in tokenizer["model"]["vocab"].items():
        tokens[number], types[number] = token, kinds.NORMAL
    for added in tokenizer.get("added_tokens", ()):
        tokens[added["id"]] = added["content"]
        types[added["id"]] = kinds.CONTROL if added["special"] else kinds.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_add_space_prefix(False)
    # Ids of special tokens, merges, and the chat template, from the folder's files.
    gguf.SpecialVocab(model, load_merges=True, n_vocab=size).add_to_gguf(writer)


def _add_tensors(
    gguf: Any, writer: Any, model: Path, config: Mapping[str, Any], architecture: Any
) -> None:
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    heads = int(config["num_attention_heads"])
    rotated = {"q_proj": heads, "k_proj": int(config.get("num_key_value_heads") or heads)}
    for name, tensor in _tensors(model):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None:
            raise _refusal("tensor", name, "what the architecture has")
        projection = name.rpartition(".")[0].rpartition(".")[2]
        if architecture == gguf.MODEL_ARCH.LLAMA and projection in rotated:
            tensor = _interleaved(tensor, rotated[projection])
        _add_tensor(gguf, writer, new, tensor)


def _tensors(model: Path) -> Iterator[tuple[str, Any]]:
    """Each tensor by its name, one at a time."""
    open_file = needed("safetensors", "safetensors", "--gguf").safe_open
    for path in weight_files(model):
        with open_file(path, framework="pt") as file:
            for name in sorted(file.keys()):
                yield name, file.get_tensor(name)


def _interleaved(tensor: Any, heads: int) -> Any:
    """Rows of each head from Transformers' halves to the pairs that llama.cpp rotates."""
    rest = tensor.shape[1:]
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *rest)
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _add_tensor(gguf: Any, writer: Any, name: str, tensor: Any) -> None:
    import torch

    if tensor.dim() == 1 or tensor.dtype == torch.float32:
        writer.add_tensor(name, tensor.float().contiguous().numpy())
    elif tensor.dtype == torch.bfloat16:
        # NumPy has no bfloat16: its bytes go as they are.
        data = tensor.contiguous().view(torch.uint8).numpy()
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(name, tensor.contiguous().numpy())
