"""Tokens and certificates that are replaced while a job runs, as cert-manager and people do it.

Runs after test_e2e_training.py. No pod starts again: Kubernetes changes the files of those
that run.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.certificates import Authority
from support.cluster_jobs import LASTING, SERVICES, goes_on, in_the_middle, outside
from support.kubernetes_cluster import RELEASE, Cluster, Installation

pytestmark = pytest.mark.timeout(1800)

AUTH = f"{RELEASE}-auth"
MOUNTS = {"auth": "/etc/podium/auth", "tls": "/etc/podium/tls"}


def replaced(cluster: Cluster, secret: str, mount: str, data: Mapping[str, bytes]) -> None:
    """Replaces keys of a Secret, and waits until each pod that mounts it has the new files."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    cluster.kubectl("patch", "secret", secret, "-p", json.dumps({"data": encoded}))
    # A kubelet looks at the Secrets of a pod that changes at once, of others every minute or so.
    touched = f"podium-e2e/touched={secrets.token_hex(4)}"
    cluster.kubectl("annotate", "pods", "--all", "--overwrite", touched)
    end = time.monotonic() + 600
    for pod in json.loads(cluster.kubectl("get", "pods", "-o", "json"))["items"]:
        volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
        if mount not in volumes or pod["status"]["phase"] != "Running":
            continue
        name = f"pod/{pod['metadata']['name']}"
        for key, value in data.items():
            show = ("exec", name, "--", "cat", f"{MOUNTS[mount]}/{key}")
            while cluster.kubectl(*show).strip() != value.decode().strip():
                assert time.monotonic() < end, f"{name} still has the former {key}"
                time.sleep(1)


def listed(client: Mapping[str, str], token: str) -> int:
    """The exit code of a call with a token."""
    return subprocess.run(
        [sys.executable, "-m", "podium.cli", "job", "list"],
        env={**client, "PODIUM_TOKEN": token},
        capture_output=True,
        check=False,
    ).returncode


def shown_by(address: str, certificate: Mapping[str, str]) -> bytes:
    """The certificate of a port, as PEM, to a client with one."""
    files = {name: certificate[f"PODIUM_TLS_{name}_FILE"] for name in ("CERTIFICATE", "KEY")}
    context = ssl.create_default_context(cafile=certificate["PODIUM_TLS_AUTHORITIES_FILE"])
    context.load_cert_chain(files["CERTIFICATE"], files["KEY"])
    context.set_alpn_protocols(["h2"])
    host, port = address.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        found = secure.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found).encode()


def lives(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Which pods there are, trainers apart, and how often each one's container started again."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(each["restartCount"] for each in pod["status"]["containerStatuses"]),
        )
        for pod in json.loads(cluster.kubectl("get", "pods", "-o", "json"))["items"]
        if pod["status"]["phase"] == "Running" and "-trainer-" not in pod["metadata"]["name"]
    }


def test_tokens_and_certificates_are_replaced_under_a_job_that_runs(
    installation: Installation,
    authority: Authority,
    service_names: Sequence[str],
    tmp_path: Path,
) -> None:
    cluster = installation.cluster
    old, new = installation.token, secrets.token_urlsafe(36)
    in_the_middle(installation, LASTING)
    before = lives(cluster)
    # Both are taken before the new one is shown, and the old one goes last.
    replaced(cluster, AUTH, "auth", {"tokens": f"{old}\n{new}\n".encode()})
    replaced(cluster, AUTH, "auth", {"token": new.encode()})
    replaced(cluster, AUTH, "auth", {"tokens": f"{new}\n".encode()})
    files = authority.issue(tmp_path, *service_names)
    renewed = {"tls.crt": files["certificate"], "tls.key": files["key"]}
    data = {key: path.read_bytes() for key, path in renewed.items()}
    replaced(cluster, installation.tls_secret, "tls", data)
    with outside(installation) as client:
        assert listed(client, new) == 0
        assert listed(client, old) == 4
        for variable in SERVICES:
            shown = shown_by(client[variable], installation.certificate)
            assert shown.strip() == data["tls.crt"].strip(), variable
    assert lives(cluster) == before
    goes_on(installation, LASTING)
