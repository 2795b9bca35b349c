"""What full fine-tuning publishes is the model that the trainer has, in the base's own names."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.local.models import causal_kinds, untrainable
from podium_inference.adapters.weight_files import check_model
from podium_trainer.learner.checkpoint import MODEL, read, write
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig, Session
from safetensors.torch import load_file, save_file
from support.families import IMAGES, build_family, build_kind, build_mixture, build_with_images
from support.near_policy import near_groups
from support.tiny_policy import VOCABULARY, build_small_llama, training_spec
from transformers import AutoModelForCausalLM

TOKENS = torch.tensor([3, 5, 8, 13, 21, 34, 55, 89])
SORTS: dict[str, Callable[[Path], Path]] = {
    # Experts, of which the files have a matrix each and the model a stack.
    "qwen3_moe": partial(build_mixture, "qwen3_moe"),
    "mixtral": partial(build_mixture, "mixtral"),
    # A bias of its router that is no parameter.
    "kimi": partial(build_family, "kimi"),
    # A parameter that its router only counts by.
    "ernie": partial(build_mixture, "ernie4_5_moe"),
    # A part for images, which no prompt goes through; constants of layers; other names in files.
    **{kind: partial(build_with_images, kind) for kind in IMAGES},
}


@pytest.mark.parametrize("sort", SORTS)
def test_a_whole_version_is_what_was_trained(sort: str, tmp_path: Path) -> None:
    folder = SORTS[sort](tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    biases = [name for name in weights if name.endswith("e_score_correction_bias")]
    assert bool(biases) == (sort in ("kimi", "ernie"))
    for name in biases:
        weights[name] = torch.linspace(-0.5, 0.5, weights[name].numel()).view_as(weights[name])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    spec = training_spec(trainable="TRAINABLE_KIND_FULL", learning_rate=1e-2)
    session = Session(JobConfig("job", "whole", spec, 0), folder, "d", Compute())
    before = session.policy.network.plain(TOKENS).detach()
    session.train(near_groups(folder, 1, groups=3), lambda: False)
    trained = session.policy.network.plain(TOKENS).detach()
    assert float((trained - before).abs().max()) > 0.1
    write(session.checkpoint(), folder, tmp_path / "version", Ranks())

    published = tmp_path / "version" / MODEL
    check_model(folder, published)
    plain = AutoModelForCausalLM.from_pretrained(published, dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(TOKENS[None]).logits[0], trained, atol=0, rtol=0)

    resumed = Session(
        JobConfig("job", "whole", spec, 0), folder, "d", Compute(), read(tmp_path / "version")
    )
    for each in (session, resumed):
        each.train(near_groups(folder, 2, groups=3), lambda: False)
    expected = session.checkpoint().weights
    for name, tensor in resumed.checkpoint().weights.items():
        assert torch.equal(tensor, expected[name]), name


def test_a_whole_version_need_not_hold_what_nothing_reads(tmp_path: Path) -> None:
    """What older Transformers wrote besides, and a second name of a tied embedding."""
    folder = build_small_llama(tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    more = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    head = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    save_file(weights | more | head, folder / "model.safetensors", metadata={"format": "pt"})
    spec = training_spec(trainable="TRAINABLE_KIND_FULL")
    session = Session(JobConfig("job", "whole", spec, 0), folder, "d", Compute())
    write(session.checkpoint(), folder, tmp_path / "version", Ranks())
    check_model(folder, tmp_path / "version" / MODEL)
    # A weight that is read must be there.
    published = tmp_path / "version" / MODEL / "model.safetensors"
    less = load_file(published)
    del less["model.norm.weight"]
    save_file(less, published, metadata={"format": "pt"})
    with pytest.raises(FailedPreconditionError, match=r"model\.norm\.weight has shape None"):
        check_model(folder, tmp_path / "version" / MODEL)


UNREAD: dict[str, tuple[str, dict[str, object], dict[str, torch.Tensor]]] = {
    # Pythia's; float16 cannot say the number under the mask.
    "gpt_neox": (
        "gpt_neox",
        {},
        {
            "gpt_neox.layers.0.attention.bias": torch.ones(1, 1, 8, 8, dtype=torch.uint8),
            "gpt_neox.layers.0.attention.masked_bias": torch.tensor(-torch.inf),
        },
    ),
    "several tokens": (
        "qwen3",
        {},
        {"model.layers.2.eh_proj.weight": torch.ones(1), "model.mtp_block.0.w": torch.ones(1)},
    ),
    "shared keys": (
        "gemma4_text",
        {
            "num_kv_shared_layers": 1,
            "layer_types": ["full_attention"] * 2,
            "vocab_size_per_layer_input": VOCABULARY,
        },
        {"model.layers.1.self_attn.k_proj.weight": torch.ones(1)},
    ),
    "gemma": ("gemma3_text", {}, {"lm_head.weight": torch.empty(0)}),
}


@pytest.mark.parametrize("sort", UNREAD)
def test_what_no_program_reads_has_no_place_in_a_version(sort: str, tmp_path: Path) -> None:
    kind, options, more = UNREAD[sort]
    folder = build_kind(kind, tmp_path / "base", **options)
    weights = load_file(folder / "model.safetensors")
    if "lm_head.weight" in more:
        # config.json does not say that they are one: the class does.
        more = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
        config = json.loads((folder / "config.json").read_text())
        del config["tie_word_embeddings"]
        (folder / "config.json").write_text(json.dumps(config))
    assert not more.keys() & weights.keys()
    save_file(weights | more, folder / "model.safetensors", metadata={"format": "pt"})
    assert untrainable(folder, causal_kinds()) == ""
    spec = training_spec(trainable="TRAINABLE_KIND_FULL")
    session = Session(JobConfig("job", "whole", spec, 0), folder, "d", Compute())
    write(session.checkpoint(), folder, tmp_path / "version", Ranks())
    check_model(folder, tmp_path / "version" / MODEL)
    less = load_file(tmp_path / "version" / MODEL / "model.safetensors")
    assert not more.keys() & less.keys()


def test_a_model_with_tensors_that_a_version_would_lack_is_refused(tmp_path: Path) -> None:
    """When the job opens, and not by every pool after its first step."""
    folder = build_small_llama(tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    weights |= {"model.layers.1.self_attn.sinks": torch.ones(2)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    spec = training_spec(trainable="TRAINABLE_KIND_FULL")
    with pytest.raises(InvalidArgumentError) as caught:
        Session(JobConfig("job", "whole", spec, 0), folder, "d", Compute())
    assert "its files hold model.layers.1.self_attn.sinks" in caught.value.message
    assert caught.value.reason == "UNSUPPORTED_MODEL"


def test_a_model_whose_files_hold_other_tensors_is_refused(tmp_path: Path) -> None:
    """Stacks of experts, where a version would have them one by one: no pool could read it."""
    folder = build_mixture("qwen3_moe", tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(folder)
    kept = {name: each for name, each in weights.items() if ".experts." not in name}
    whole = {n: p.detach().clone() for n, p in model.named_parameters() if ".experts." in n}
    save_file(kept | whole, folder / "model.safetensors", metadata={"format": "pt"})
    spec = training_spec(trainable="TRAINABLE_KIND_FULL")
    with pytest.raises(InvalidArgumentError) as caught:
        Session(JobConfig("job", "whole", spec, 0), folder, "d", Compute())
    assert "its files have no model.layers.0.mlp.experts.0." in caught.value.message
    assert caught.value.reason == "UNSUPPORTED_MODEL"
