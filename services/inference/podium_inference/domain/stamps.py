"""Which versions sampled an answer, in the contract's words."""

from __future__ import annotations

from collections.abc import Sequence

from podium.inference.v1 import inference_service_pb2 as pb

from podium_inference.domain.ports import Run


def stamp(generation: pb.Generation, runs: Sequence[Run]) -> None:
    """Tells the versions of all tokens of an answer; without `runs` it is left as it is."""
    if not runs:
        return
    generation.weights_version = min(version for _, version in runs)
    if len(runs) > 1:
        for tokens, version in runs:
            generation.versions.add(tokens=tokens, weights_version=version)
