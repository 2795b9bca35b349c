"""A policy of each architecture on a base that another one shares is what it is alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from podium_trainer.learner.base import Base
from podium_trainer.learner.precision import Arithmetic
from podium_trainer.learner.session import Compute, JobConfig, Session
from support.families import FAMILIES, build_family
from support.kept_versions import bits
from support.tiny_policy import step_groups, training_spec


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shared_base_computes_as_one_of_its_own(family: str, tmp_path: Path) -> None:
    folder = build_family(family, tmp_path / family)
    training = training_spec(
        learning_rate=1e-2,
        lora={"rank": 4},
        dtype="COMPUTE_DTYPE_FLOAT32",
        loss={"kl_coefficient": 0.1},
    )
    config = JobConfig("job", family, training, 3)
    other = training_spec(lora={"rank": 8}, gradient_checkpointing=True, learning_rate=1.0)

    def trained(base: Base | None) -> dict[str, str]:
        session = Session(config, folder, "d", Compute(row_tokens=110), base=base)
        if base is not None:
            session.park()
            beside = Session(JobConfig("o", family, other, 4), folder, "d", Compute(), base=base)
            beside.train(step_groups(2, groups=1), lambda: False)
            beside.park()
            session.unpark()
        assert session.train(step_groups(1, groups=2), lambda: False).metrics["kl_loss"] == 0
        session.train(step_groups(2, groups=2), lambda: False)
        return bits(session.checkpoint())

    base = Base(folder, "d", Arithmetic(torch.float32), "", torch.device("cpu"))
    assert trained(base) == trained(None)
