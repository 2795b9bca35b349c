"""What the engine is started with, by the device: DESIGN's adapters and compiled graphs on GPUs."""

from __future__ import annotations

import gc
import importlib
import json
import logging
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, get_args

import pytest
from podium_inference.adapters.engine_options import (
    LORA_RANKS,
    engine_options,
    for_device,
    for_this_device,
    latent_attention,
    prepare_environment,
)
from podium_inference.settings import Settings
from vllm import SamplingParams

CPU = {"weight_mode": "merged", "enforce_eager": True, "max_num_seqs": 64}
GPU = {"weight_mode": "adapter", "enforce_eager": False, "max_num_seqs": 0}
"""0: vLLM's own choice, by the GPU's memory."""


@pytest.mark.parametrize(("cpu", "expected"), [(True, CPU), (False, GPU)])
def test_what_is_not_named_is_the_devices(cpu: bool, expected: dict[str, Any]) -> None:
    decided = for_device(Settings(), cpu=cpu)
    assert {name: getattr(decided, name) for name in expected} == expected


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("named", [CPU, {**GPU, "max_num_seqs": 7}])
def test_what_is_named_stays_on_any_device(
    cpu: bool, named: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in named.items():
        monkeypatch.setenv(f"PODIUM_INFERENCE_{name.upper()}", str(value).lower())
    decided = for_device(Settings(), cpu=cpu)
    assert {name: getattr(decided, name) for name in named} == named


def test_only_a_number_that_was_asked_for_reaches_the_engine(tmp_path: Any) -> None:
    """On this machine, a CPU by vLLM's own account."""
    pytest.importorskip("vllm")
    here = engine_options(for_this_device(Settings()), tmp_path)
    assert here["max_num_seqs"] == 64
    assert here["enforce_eager"] is True
    assert "enable_lora" not in here
    there = engine_options(for_device(Settings(), cpu=False), tmp_path)
    assert "max_num_seqs" not in there
    assert there["enforce_eager"] is False
    assert there["enable_lora"] is True


def test_vllms_modules_are_loaded_while_python_looks_for_no_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = importlib.import_module
    collecting = {}

    def watched(name: str, package: str | None = None) -> Any:
        collecting[name] = gc.isenabled()
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", watched)
    for_this_device(Settings())
    assert collecting["vllm.v1.engine.async_llm"] is False
    assert gc.isenabled()


@pytest.mark.parametrize("named", ["", "1"])
def test_no_sampler_needs_a_compiler_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """vLLM's own default has nvcc compile one on a GPU, at the first request that needs it."""
    envs = pytest.importorskip("vllm.envs")
    # Set first, so that it is as before afterwards.
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", named)
    if not named:
        monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER")
    prepare_environment(Settings())
    assert envs.environment_variables["VLLM_USE_FLASHINFER_SAMPLER"]() is bool(named)


def test_a_long_tmpdir_leaves_vllms_sockets_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    envs = pytest.importorskip("vllm.envs")
    long = tmp_path / ("t" * 110)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "")
    monkeypatch.delenv("VLLM_RPC_BASE_PATH")
    prepare_environment(Settings())
    path = envs.environment_variables["VLLM_RPC_BASE_PATH"]()
    assert len(f"{path}/{uuid.uuid4()}") <= 107


def test_any_greatest_rank_has_the_next_for_which_vllm_makes_room(tmp_path: Any) -> None:
    lora = pytest.importorskip("vllm.config.lora")
    assert get_args(lora.MaxLoRARanks) == LORA_RANKS
    for asked, given in ((1, 1), (24, 32), (64, 64), (512, 512)):
        settings = for_device(Settings(max_lora_rank=asked), cpu=False)
        assert engine_options(settings, tmp_path)["max_lora_rank"] == given


def test_a_reasoning_parser_is_the_engines_and_the_openai_apis(tmp_path: Any) -> None:
    pytest.importorskip("vllm")
    from podium_inference.adapters.http.openai_api import build

    settings = for_this_device(Settings(model="tiny", reasoning_parser="qwen3"))
    assert engine_options(settings, tmp_path)["reasoning_parser"] == "qwen3"
    root = logging.getLogger()
    level = root.level
    try:
        _, arguments = build(settings, "tiny", ("generate",), None)
    finally:
        # Something that vLLM imports raises it, and other tests read warnings.
        root.setLevel(level)
    assert arguments.structured_outputs_config.reasoning_parser == "qwen3"
    _, arguments = build(Settings(model="tiny"), "tiny", ("generate",), None)
    assert arguments.structured_outputs_config.reasoning_parser == ""


def test_what_a_request_leaves_out_is_no_default_of_the_checkpoint(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Qwen's top_p, top_k and repetition penalty would make every call of an agent untrainable."""
    pytest.importorskip("vllm")
    from vllm.engine.arg_utils import AsyncEngineArgs

    model = shutil.copytree(tiny_model, tmp_path / "model")
    file = model / "generation_config.json"
    ends = {"eos_token_id": [2, 5]}
    own = {"do_sample": True, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
    file.write_text(json.dumps({**json.loads(file.read_text()), **own, **ends}))
    config = AsyncEngineArgs(
        **engine_options(for_this_device(Settings()), model)
    ).create_model_config()
    assert config.get_diff_sampling_param() == {}
    # Which tokens end an answer is the checkpoint's to say.
    assert config.try_get_generation_config()["eos_token_id"] == ends["eos_token_id"]


@pytest.mark.parametrize("nested", [False, True])
def test_latent_attention_in_float32_does_not_take_kernels_of_bfloat16(
    nested: bool, tmp_path: Any
) -> None:
    """Where the processor has AMX, vLLM would; test_trainer_families runs it."""
    assert latent_attention(tmp_path, "float32") == {}
    config = tmp_path / "config.json"
    config.write_text("{}")
    assert latent_attention(tmp_path, "float32") == {}
    latent = {"kv_lora_rank": 512}
    config.write_text(json.dumps({"text_config": latent} if nested else latent))
    assert latent_attention(tmp_path, "float32") == {"attention_backend": "CPU_MLA"}
    assert latent_attention(tmp_path, "bfloat16") == {}


def test_0_01_is_the_least_temperature_that_the_engine_samples_at() -> None:
    # Jobs below it are refused: what is recorded would not be what was sampled at.
    assert SamplingParams(temperature=0.005).temperature == 0.01
    assert SamplingParams(temperature=0.02).temperature == 0.02
