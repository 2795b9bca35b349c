"""The way back from an upgrade.

Runs after test_e2e_training_resources.py, which needs what the upgrade has brought.
"""

from __future__ import annotations

import json

import pytest
from support.cluster_jobs import outside, podium
from support.custom_resources import MONITORING
from support.kubernetes_cluster import RELEASE, Installation

pytestmark = pytest.mark.timeout(1800)


def test_a_rollback_brings_the_first_release_back(installation: Installation) -> None:
    cluster, token = installation.cluster, installation.token
    cluster.helm("rollback", RELEASE, "1", "--wait", "--timeout", "15m")
    assert cluster.names("poddisruptionbudgets") == []
    assert cluster.names(",".join(MONITORING)) == []
    assert installation.token == token


def test_the_jobs_are_still_there(installation: Installation) -> None:
    """Every pod was new twice: what is left is what the database and the volumes hold."""
    with outside(installation) as client:
        assert {"first", "lasting"} <= set(podium(client, "job", "list", "-o", "name").split())
        versions = json.loads(podium(client, "checkpoint", "list", "first", "-o", "json"))
        assert {1, 2, 3} <= {int(v["manifest"].get("version", 0)) for v in versions}
