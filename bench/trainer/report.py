"""The results as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.trainer.measure import short

TITLES = {
    "a": "flat over packed, forward and backward",
    "b": "one whole step, TRL over Podium",
    "c": "peak memory of the head, full logits over chunked",
    "d": "products of frozen weights, torch's over oneDNN's, forward and backward",
}


def render(results: Mapping[str, Any]) -> str:
    """Every part that ran; medians, with quartiles in brackets."""
    host = results["machine"]
    lines = [
        "",
        f"{host['cpu']}, {host['cores']} cores, {host['threads']} threads, torch {host['torch']}; "
        "median (lower to upper quartile)",
    ]
    tables: dict[str, Callable[[Any], Iterator[str]]] = {
        "a": _layouts,
        "b": _whole_step,
        "c": _head,
        "d": _products,
    }
    for name, title in TITLES.items():
        if name not in results:
            continue
        found = results[name]
        lines += ["", f"{name}. {title}"]
        if "unequal" in found:
            lines.append(f"   NOT EQUAL, nothing was timed: {found['unequal']}")
        elif "skipped" in found:
            lines.append(f"   skipped: {found['skipped']}")
        else:
            lines += tables[name](found)
    return "\n".join(lines)


def _layouts(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in found:
        shape = f"({row['prompt']}, {row['completion']}, {row['group']})"
        yield (
            f"   {shape:<15} {short(row['time_ratio'])} times faster, token ratio "
            f"{row['token_ratio']:.2f}, share {row['share_of_token_ratio']:.2f} "
            f"{_verdict(row['met'], row['target'])}; gradients differ by "
            f"{row['gradient_difference']:.1e}"
        )


def _whole_step(found: Mapping[str, Any]) -> Iterator[str]:
    ours, theirs = found["podium"], found["trl"]
    yield f"   TRL generates by {found['trl_generation']}, Podium by its vLLM engine; seconds:"
    yield f"   Podium's products of frozen weights: {found['settings']['products']}"
    for name in ("seconds", "generation", "training", "new_weights"):
        other = short(theirs[name], 1) if name in theirs else "-"
        yield f"   {name:<12} podium {short(ours[name], 1):<22} trl {other}"
    whole = _verdict(found["met_whole"], found["target_whole"])
    training = _verdict(found["met_training"], found["target_training"])
    yield f"   whole        {short(found['whole_ratio'])} times faster {whole}"
    yield f"   generation   {short(found['generation_ratio'])} times faster"
    yield f"   training     {short(found['training_ratio'])} times faster {training}"
    interval = found["reward_ahead_interval"]
    within = f"(95 % {interval[0]:+.3f} to {interval[1]:+.3f}) " if interval else ""
    yield from bound_lines(found["bound"])
    yield (
        f"   mean reward of the last three steps: podium less trl {found['reward_ahead']:+.3f} "
        f"{within}"
        f"{_verdict(found['met_reward'], found['reward_tolerance'], 'tolerance')}; by seed:"
    )
    for name, ends in found["reward_of_last_three"].items():
        yield f"   {name:<12} {' '.join(f'{value:.3f}' for value in ends)}"
    yield "   rewards by step, a line each seed:"
    for name, curves in found["reward_curves"].items():
        for curve in curves:
            yield f"   {name:<12} {' '.join(f'{value:.3f}' for value in curve)}"
    yield f"   gradients differ by {found['gradient_difference']:.1e}"
    yield (
        "   samples of the base model, apart by standard errors: rewards "
        f"{found['reward_errors']:.1f}, special tokens {found['special_errors']:.1f}, "
        f"log-probs {found['score_errors']:.1f}"
    )


def bound_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What part b is held to on this processor."""
    yield (
        f"   bound: {found['generation'] / 1e12:.2f} TFLOP of generation and "
        f"{found['training'] / 1e12:.2f} of training, at the {found['sampler_gflops']:.0f} and "
        f"{found['trainer_gflops']:.0f} GFLOP/s that one product has here, take "
        f"{found['seconds']:.1f} s; no step is more than {found['whole_ratio']:.2f} times faster, "
        f"nor training more than {found['training_ratio']:.2f}"
    )
    if found["no_bfloat16"]:
        yield f"   products of bfloat16 would allow more: {found['no_bfloat16']}"


def _head(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in found:
        yield (
            f"   V {row['vocabulary']:>6}, H {row['hidden']:>4}: chunked "
            f"{row['chunked_peak_mib']['median']:.0f} MiB, plain "
            f"{row['plain_peak_mib']['median']:.0f} MiB, {short(row['memory_ratio'])} times less, "
            f"time {short(row['time_ratio'])}; gradients differ by {row['gradient_difference']:.1e}"
        )


def _products(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"   (prompt, completion, group) {tuple(found['shape'])}, {found['tokens']} tokens packed, "
        f"{found['operations'] / 1e12:.2f} TFLOP of frozen products"
    )
    for name, row in found["ways"].items():
        if "skipped" in row:
            yield f"   {name:<9} skipped: {row['skipped']}"
            continue
        yield (
            f"   {name:<9} {short(row['seconds'])} s, {short(row['ratio'])} times faster; at the "
            f"{row['gflops']:.0f} GFLOP/s that one product has {row['bound_seconds']:.2f} s; "
            f"gradients differ by {row['gradient_difference']:.1e}, {row['gradient_share']:.1e} of "
            f"the norm, log-probs by {row['nats']:.1e} nats"
        )


def _verdict(met: bool, target: float, what: str = "target") -> str:
    return f"[{what} {target:g}: {'met' if met else 'MISSED'}]"
