"""Random groups of samples that share prefixes in every way."""

from __future__ import annotations

from hypothesis import strategies as st
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.samples import Sample
from support.tiny_policy import VOCABULARY, sample, weighted


@st.composite
def samples_of_trees(draw: st.DrawFn) -> list[Weighted]:
    """Groups of samples grown from each other: forks anywhere, prefixes, duplicates."""
    token = st.integers(0, VOCABULARY - 1)
    samples: list[Sample] = []
    groups: list[int] = []
    system = draw(st.lists(token, min_size=0, max_size=4))
    for number in range(draw(st.integers(1, 3))):
        prompt = system + draw(st.lists(token, min_size=2, max_size=6))
        grown = [prompt]
        for _ in range(draw(st.integers(1, 5))):
            parent = draw(st.sampled_from(grown))
            cut = draw(st.integers(2, len(parent)))
            tokens = parent[:cut] + draw(st.lists(token, min_size=0, max_size=6))
            grown.append(tokens)
            flags = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
            sampled = [i for i in range(1, len(tokens)) if flags[i]] or [len(tokens) - 1]
            temperature = draw(st.sampled_from([1.0, 0.7]))
            samples.append(sample(tokens, sampled, seed=len(samples), temperature=temperature))
            groups.append(number)
    return weighted(samples, groups)
