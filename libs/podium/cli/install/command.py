"""`podium install`."""

from __future__ import annotations

import asyncio
import shlex

import click

from podium.cli.exits import Exit
from podium.cli.findings import failed, show
from podium.cli.output import data, note, plain_output_option


@click.command(short_help="Check a cluster, and say how to install there.")
@click.option("--release", metavar="NAME", default="podium", show_default=True, help="Its name.")
@click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    default="podium",
    show_default=True,
    help="Where it is to run.",
)
@click.option(
    "--kube-context",
    metavar="NAME",
    default="",
    help="The cluster, as the kubeconfig calls it. [default: kubectl's current one]",
)
@click.option(
    "--gpu-resource",
    metavar="NAME",
    default="nvidia.com/gpu",
    show_default=True,
    help="How nodes call a GPU.",
)
@click.option(
    "--chart",
    metavar="CHART",
    default="charts/podium",
    show_default=True,
    help="The chart, as helm is to find it.",
)
@plain_output_option
def install(
    release: str, namespace: str, kube_context: str, gpu_resource: str, chart: str, output: str
) -> int:
    """Check a cluster through kubectl, and print the helm command that fits it.

    Nothing is installed, and nothing is written to the cluster. Exit code 1 when something is
    missing that the chart cannot do without.
    """
    from podium.cli.install.cluster import look
    from podium.cli.install.values import HUB_SECRET, Wish, helm_command
    from podium.cli.install.verdict import findings
    from podium.sdk.connection.kubectl import Kubectl

    wish = Wish(release, namespace, kube_context, chart, gpu_resource)
    kubectl = Kubectl(kube_context, namespace)
    cluster = asyncio.run(look(kubectl, release, gpu_resource, [HUB_SECRET]))
    found = findings(cluster, wish)
    command = helm_command(cluster, wish)
    broken = failed(found)
    if output == "table":
        show(found)
        click.echo(f"\n{_wrapped(command)}")
    else:
        data(
            {
                "ready": not broken,
                "findings": [vars(finding) for finding in found],
                "command": command,
            },
            output,
        )
    if broken:
        note(f"not ready: {', '.join(finding.name for finding in broken)}")
        return Exit.FAILED
    place = f" --kube-context {kube_context}" if kube_context else ""
    note(f"after it:  podium login NAME --release {release} --namespace {namespace}{place}")
    return Exit.OK


def _wrapped(command: list[str]) -> str:
    """For a shell, an option a line."""
    text = ""
    for word in command:
        text += " \\\n    " if word.startswith("--") else " " if text else ""
        text += shlex.quote(word)
    return text
