"""Whether a model's architecture can be packed: asked of the model itself, at start."""

from __future__ import annotations

import logging

import numpy as np
import torch
from podium.core.errors import InvalidArgumentError, Violation

from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import build_row
from podium_trainer.domain.samples import Sample
from podium_trainer.learner.network import Network, blocks

logger = logging.getLogger(__name__)

_TOKENS = 48
# SmolLM2 in float32 is off by 0.000005 nats, on one machine once by 0.00016; in bfloat16 by 0.045.
# With positions counted along the row it is off by 0.3, without a mask by 2.5.
_FLOAT32_NATS = 1e-3
_BFLOAT16_NATS = 0.2


@torch.no_grad()
def check_family(network: Network, dtype: torch.dtype) -> None:
    """Compares a small tree with the model's own plain forward pass.

    It finds models whose attention ignores the tree, whose positions are their own, or
    whose logits are more than hidden states times the output embedding.

    Raises:
        InvalidArgumentError: the two differ, or the model cannot run a tree.
    """
    _check_structure(network)
    # Not the first ids: those are special tokens, whose untrained embeddings make bfloat16 useless.
    ids = np.random.default_rng(0).integers(1, network.vocabulary, _TOKENS)
    fork = _TOKENS // 3
    samples = [ids, np.concatenate([ids[:fork], ids[fork + 1 :]]), ids[: 2 * fork]]
    row = build_row([_probe(tokens, number) for number, tokens in enumerate(samples)])
    try:
        packed = network(row)[0].cpu().numpy()
        alone = [network.plain(torch.from_numpy(tokens)) for tokens in samples]
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        # RuntimeErrors too, which are of the GPU and not of the model.
        raise
    except (TypeError, ValueError, RuntimeError, AttributeError, LookupError) as error:
        why = f"it cannot run a packed row ({type(error).__name__}: {error})"
        raise unsupported(network, why) from error
    layers = len(blocks(network))
    if network.attended < layers:
        raise unsupported(
            network,
            f"{network.attended} of its {layers} layers have an attention that takes a tree; the"
            " others see along the row, such as recurrent ones, or have an attention of their own",
        )
    differences = []
    for number, (tokens, logits) in enumerate(zip(samples, alone, strict=True)):
        plain = torch.log_softmax(logits[:-1], dim=-1).cpu().numpy()
        expected = plain[np.arange(len(tokens) - 1), tokens[1:]]
        differences.append(np.abs(packed[row.trajectories == number] - expected))
    off = float(np.concatenate(differences).mean())
    # TF32, where it is on, rounds as bfloat16 does but for three bits.
    exact = dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    bound = _FLOAT32_NATS if exact else _BFLOAT16_NATS
    logger.info("packed log-probs compared", extra={"nats": off, "allowed_nats": bound})
    if not off <= bound:
        raise unsupported(
            network, f"packed log-probs are off by {off:.3g} nats, over {bound:g} allowed"
        )


def _check_structure(network: Network) -> None:
    """What would not be found by numbers: where bfloat16 rounds much, or a weight is zero yet."""
    config = network.causal.config.get_text_config()
    if getattr(network.causal.get_output_embeddings(), "bias", None) is not None:
        raise unsupported(network, "its output embedding has a bias")
    if (bound := getattr(config, "attn_logit_softcapping", None)) is not None:
        why = f"its attention bounds its scores (attn_logit_softcapping {bound})"
        raise unsupported(network, why)
    if any(isinstance(module, torch.nn.Conv1d) for module in blocks(network).modules()):
        raise unsupported(network, "its layers have convolutions, which see along the row")


def unsupported(network: Network, why: str) -> InvalidArgumentError:
    """The error for a model that cannot train."""
    kind = network.causal.config.model_type
    return InvalidArgumentError(
        violations=[Violation("base_model", f"models of kind {kind} cannot train: {why}")],
        reason="UNSUPPORTED_MODEL",
    )


def _probe(tokens: np.ndarray, number: int) -> Weighted:
    count = len(tokens) - 1
    sample = Sample(
        context=tokens[:-1],
        positions=np.arange(count),
        targets=tokens[1:],
        logprobs=np.zeros(count, np.float32),
        temperatures=np.ones(count, np.float32),
    )
    return Weighted(sample, 0, number, 0.0, 0.0)
