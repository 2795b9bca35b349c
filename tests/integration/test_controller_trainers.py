"""Trainers without a cluster, and templates for one that cannot work: a real controller."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry

__all__ = ["client", "fleet", "registry"]


async def test_without_a_cluster_wishes_for_a_trainer_are_refused(client: Client) -> None:
    wishes = spec_pb2.TrainerSpec(nodes=2, gpus_per_node=8, queue="team-a", priority_class="high")
    with pytest.raises(InvalidArgumentError) as raised:
        await client.create(small_job(1, trainer=wishes))
    assert [each.field for each in raised.value.violations] == [
        f"job.spec.trainer.{name}" for name in ("nodes", "gpus_per_node", "queue", "priority_class")
    ]
    assert "got 2; allowed is 1" in raised.value.violations[0].description
    assert "one trainer for all jobs" in raised.value.violations[0].description


async def test_one_node_is_what_everybody_has(client: Client) -> None:
    spec = small_job(1, trainer=spec_pb2.TrainerSpec(nodes=1))
    job = await client.create(spec, validate_only=True)
    assert job.spec.trainer.nodes == 1
    assert (await client.create(small_job(1), validate_only=True)).spec.trainer.nodes == 1


def test_without_a_cluster_its_client_is_not_loaded() -> None:
    loaded = "import podium_controller.service, sys; sys.exit('kubernetes' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", loaded], env=os.environ, check=False)
    assert found.returncode == 0


def test_a_template_that_cannot_work_ends_the_controller_with_one_line(
    tmp_path: os.PathLike[str],
) -> None:
    variables = {
        "PODIUM_CONTROLLER_TRAINER_TEMPLATE": str(tmp_path / "trainer.yaml"),
        "PODIUM_CONTROLLER_DATA_DIR": str(tmp_path),
        **{f"PODIUM_CONTROLLER_{name}": "0" for name in ("PORT", "HEALTH_PORT", "METRICS_PORT")},
    }
    found = subprocess.run(
        [sys.executable, "-m", "podium_controller"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 1
    assert "trainer.yaml" in found.stderr
    assert "Traceback" not in found.stderr
