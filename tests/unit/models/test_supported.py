"""Checkpoints as the world has them: which are whole, and which can train, by their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError, NotFoundError, PodiumError
from podium.local.models import check_whole, untrainable, weight_files
from support.model_files import NO_TENSORS, of_type

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
KINDS = ("llama", "qwen3")
INDEX = "model.safetensors.index.json"


def folder(path: Path, config: object, **files: bytes | str) -> Path:
    """A model's; `__` in a name stands for a dot."""
    (path / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (path / name.replace("__", ".")).write_bytes(data)
    return path


def index(**weight_map: str) -> str:
    return json.dumps({"metadata": {}, "weight_map": weight_map})


def test_what_is_whole_is_taken(tmp_path: Path) -> None:
    whole = folder(tmp_path, LLAMA, model__safetensors=of_type("BF16"))
    check_whole(whole)
    assert untrainable(whole, KINDS) == ""


def test_the_same_weights_under_other_names_are_left_alone(tmp_path: Path) -> None:
    """Mistral's repositories hold `consolidated.safetensors` beside the shards."""
    parts = {"model-1": "q", "model-2": "k"}
    files = {f"{part}__safetensors": of_type("BF16", name) for part, name in parts.items()}
    folder(tmp_path, LLAMA, consolidated__safetensors=of_type("BF16", "wq"), **files)
    named = {name: f"{part}.safetensors" for part, name in parts.items()}
    (tmp_path / INDEX).write_text(index(**named))
    check_whole(tmp_path)
    assert [file.name for file in weight_files(tmp_path)] == sorted(named.values())


CUT = of_type("BF16")[:-1]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n"


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ({}, NotFoundError, "it has no model.safetensors"),
        ({"weights__safetensors": NO_TENSORS}, NotFoundError, "it has no model.safetensors"),
        ({"pytorch_model__bin": b"x"}, InvalidArgumentError, "pickles (pytorch_model.bin)"),
        ({"model__safetensors": CUT}, NotFoundError, "model.safetensors cannot be read: it has"),
        ({"model__safetensors": b"PK"}, NotFoundError, "model.safetensors cannot be read"),
        ({"model__safetensors": POINTER}, NotFoundError, "a pointer of Git LFS"),
        ({"model__safetensors": b"\x02" + bytes(7) + b"[]"}, NotFoundError, "header cannot be"),
        (
            {"model__safetensors": NO_TENSORS, "adapter_config__json": "{}"},
            InvalidArgumentError,
            "it holds an adapter",
        ),
        (
            {"adapter_config__json": "{}", "adapter_model__safetensors": NO_TENSORS},
            InvalidArgumentError,
            "it holds an adapter",
        ),
        (
            {"model__safetensors__index__json": index(a="model-1.safetensors")},
            NotFoundError,
            "it has no model-1.safetensors",
        ),
        (
            {
                "model__safetensors__index__json": index(a="model-1.safetensors"),
                "model-1__safetensors": NO_TENSORS,
            },
            NotFoundError,
            "model-1.safetensors lacks a, which its index names",
        ),
        (
            {
                "model__safetensors__index__json": index(a="model-1.safetensors"),
                "model-1__safetensors": of_type("F32", "a"),
                "model__safetensors": of_type("F32", "a"),
            },
            InvalidArgumentError,
            "remove one of the two",
        ),
        (
            {"model__safetensors__index__json": index(a="../../else.safetensors")},
            NotFoundError,
            "names '../../else.safetensors'",
        ),
        ({"model__safetensors__index__json": "{}"}, NotFoundError, "index.json cannot be read"),
    ],
)
def test_what_is_not_whole_is_refused_by_name(
    files: dict[str, Any], error: type[PodiumError], words: str, tmp_path: Path
) -> None:
    folder(tmp_path, LLAMA, **files)
    with pytest.raises(error) as caught:
        check_whole(tmp_path)
    assert words in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert caught.value.reason in ("MODEL_NOT_FOUND", "UNSUPPORTED_MODEL")


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_a_configuration_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "model.safetensors").write_bytes(NO_TENSORS)
    with pytest.raises(InvalidArgumentError, match=r"config\.json"):
        check_whole(tmp_path)


@pytest.mark.parametrize(
    ("changes", "dtype", "words"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, "F8_E4M3", "'fp8'"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "I32", "'awq'"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "U8", "'mxfp4'"),
        ({"quantization_config": {}}, "BF16", "None"),
        ({"text_config": {"quantization_config": {"quant_method": "gptq"}}}, "I32", "'gptq'"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "I8", "compressed"),
        # Nothing but the files says so.
        ({}, "F8_E4M3", "mlp.up_proj.weight is of type F8_E4M3"),
        ({}, "I32", "is of type I32"),
        ({"model_type": "abacus"}, "BF16", "no causal language model of kind 'abacus'"),
        ({"model_type": "abacus", "auto_map": {}}, "BF16", "code of its own (auto_map)"),
        ({"model_type": None}, "BF16", "of kind None"),
        ({"is_encoder_decoder": True}, "BF16", "an encoder with a decoder"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "BF16", "head says no next token"),
        ({"architectures": ["LlamaModel"]}, "BF16", "LlamaModel"),
    ],
)
def test_what_cannot_train_says_why(
    changes: dict[str, Any], dtype: str, words: str, tmp_path: Path
) -> None:
    folder(tmp_path, {**LLAMA, **changes}, model__safetensors=of_type(dtype))
    check_whole(tmp_path)
    assert words in untrainable(tmp_path, KINDS)
    assert "allowed" in untrainable(tmp_path, KINDS)


def test_classes_that_nobody_named_and_constants_stop_nothing(tmp_path: Path) -> None:
    folder(tmp_path, {"model_type": "llama"}, model__safetensors=of_type("I64", "tid2eid"))
    assert untrainable(tmp_path, KINDS) == ""


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("gpt_neox.layers.0.attention.bias", False),
        ("gpt_neox.layers.0.attention.masked_bias", False),
        ("h.0.attn.bias", False),
        ("gpt_neox.layers.0.attention.dense.bias", True),
        ("gpt_neox.layers.0.attention.bias.weight", True),
        ("model.layers.0.mlp.experts.down_proj_blocks", True),
    ],
)
def test_a_stored_mask_is_no_packed_number(name: str, refused: bool, tmp_path: Path) -> None:
    """Pythia's files hold causal masks of bytes, as older Transformers wrote them."""
    folder(tmp_path, LLAMA, model__safetensors=of_type("U8", name))
    assert ("is of type U8" in untrainable(tmp_path, KINDS)) == refused
