"""What `podium install` asks is asked by the real kubectl."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from podium.cli.install.cluster import NAMESPACE, Node, look
from podium.sdk.connection.kubectl import Kubectl
from support.fake_api_server import api_server
from support.small_cluster import objects


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
async def test_the_real_kubectl_is_asked_what_it_understands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with api_server() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NO_PROXY", os.environ.get("NO_PROXY", "") + ",127.0.0.1")
        server.objects = [
            *objects(),
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "hugging-face", "namespace": "podium"},
            },
        ]
        server.forbidden = {"runtimeclasses"}
        found = await look(
            Kubectl("double", "podium"), "podium", "nvidia.com/gpu", ["hugging-face"]
        )
        assert found.version == "v1.31.2"
        assert found.nodes == (Node("a", 2, {}, ()),)
        assert (found.storage_classes, found.default_storage) == (("standard",), "standard")
        assert found.runtime_classes is None
        assert found.namespace_exists is True
        assert found.secrets == {"hugging-face"}
        assert found.denied == set()
        assert {"podmonitors.monitoring.coreos.com", "deployments.apps"} <= found.resources
        server.denied = {"create deployments.apps", NAMESPACE}
        found = await look(Kubectl("double", "podium"), "podium", "nvidia.com/gpu", [])
        assert found.denied == server.denied
