"""`podium scenarios generate`."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.exits import CliError, Exit
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.environments.scenarios.generate import Generated
    from podium.environments.types import Scenario, Tool

_OPEN_SECONDS = 120.0
_CALL_SECONDS = 300.0


@click.command(short_help="Have a model write tasks for an agent with certain tools.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file of scenarios to write.",
)
@click.option("--command", metavar="COMMAND", help="Starts an MCP server on stdin and stdout.")
@click.option("--url", metavar="URL", help="Of an MCP server that runs.")
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON list of tools with name, description and parameters, instead of a server.",
)
@click.option(
    "-n", "--count", type=click.IntRange(1, 10_000), default=24, show_default=True, help="Tasks."
)
@click.option("--append", is_flag=True, help="Add to the file, tasks unlike those in it.")
@click.option(
    "--heldout",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="Share held out.",
)
@click.option("--instructions", default="", help="Further words to the model.")
@click.option("--model", default="", help="Who writes. [default: the first that the API serves]")
@click.option(
    "--base-url",
    envvar="OPENAI_BASE_URL",
    default="https://api.openai.com/v1",
    show_default=True,
    help="Of an OpenAI-compatible API.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    default=1.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=8000,
    show_default=True,
    help="Longest answer.",
)
@click.option("--prompt-price", type=click.FloatRange(min=0), help="Of a million tokens read.")
@click.option("--completion-price", type=click.FloatRange(min=0), help="Of a million written.")
@click.option("--max-cost", type=click.FloatRange(min=0), default=0.0, help="Stop beyond it.")
def generate(
    out: Path,
    command: str | None,
    url: str | None,
    tools_file: Path | None,
    count: int,
    append: bool,
    heldout: float,
    instructions: str,
    model: str,
    base_url: str,
    temperature: float,
    max_tokens: int,
    prompt_price: float | None,
    completion_price: float | None,
    max_cost: float,
) -> int:
    """Write tasks for an agent with the tools of an MCP server, or of a file, to --out.

    The tasks are spread over five levels of difficulty and two splits, and no two are alike. The
    file is what the environment `mcp` takes as `config.scenarios`. The model is asked at
    OPENAI_BASE_URL, any OpenAI-compatible API, with OPENAI_API_KEY.
    """
    if sum(map(bool, (command, url, tools_file))) != 1:
        raise click.UsageError("give one of --command, --url and --tools")
    if (prompt_price is None) != (completion_price is None):
        raise click.UsageError("--prompt-price and --completion-price belong together")
    if max_cost and prompt_price is None:
        raise click.UsageError("--max-cost needs --prompt-price and --completion-price")
    if out.exists() and not append:
        raise CliError(f"{out} exists", "--append adds to it.", Exit.CONFLICT)
    if not out.parent.is_dir():
        raise click.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    from podium.chat import CallLimits, Endpoint, Price, Sampling, StructuredChat, Transport
    from podium.environments.scenarios.generate import generate_scenarios
    from podium.environments.scenarios.writer import write_scenarios

    before = _before(out) if append and out.exists() else []
    endpoint = Endpoint(base_url, model, os.environ.get("OPENAI_API_KEY", ""))
    price = None if prompt_price is None else Price(prompt_price, completion_price or 0.0)

    async def make() -> Generated:
        import httpx

        tools, resources = await _offered(command, url, tools_file)
        note(f"{len(tools)} tools, {len(resources)} resources")
        async with httpx.AsyncClient(timeout=None, transport=Transport("generator")) as client:
            return await generate_scenarios(
                tools,
                resources,
                count,
                chat=StructuredChat(
                    client,
                    endpoint,
                    Sampling(temperature, max_tokens),
                    CallLimits(timeout_seconds=_CALL_SECONDS),
                    price,
                    role="generator",
                ),
                custom_instructions=instructions,
                heldout=heldout,
                known=[str(scenario.data.get("task", "")) for scenario in before],
                max_cost=max_cost,
            )

    made = asyncio.run(make())
    write_scenarios(out, [*before, *made.scenarios])
    _tell(out, made, prompt_price is not None)
    if made.shortfall:
        raise CliError(
            f"{len(made.scenarios)} of {count} tasks were made: {made.shortfall}",
            f"They are in {out}; --append makes more.",
        )
    return Exit.OK


def _tell(out: Path, made: Generated, priced: bool) -> None:
    heldout = sum(scenario.split == "heldout" for scenario in made.scenarios)
    spread = ", ".join(
        f"{number} of {level}" for level, number in sorted(made.difficulties.items())
    )
    note(f"difficulty: {spread}")
    if made.refused:
        left = ", ".join(f"{number} {why}" for why, number in sorted(made.refused.items()))
        note(f"left out: {left}")
    usage = made.usage
    cost = f", cost {usage.cost:.4g}" if priced else ""
    note(
        f"{usage.calls} calls, {usage.prompt_tokens} tokens read, "
        f"{usage.completion_tokens} written{cost}"
    )
    click.echo(f"{out}: {len(made.scenarios) - heldout} train, {heldout} heldout")


def _before(out: Path) -> list[Scenario]:
    from podium.environments.scenarios import load_scenarios
    from podium.environments.scenarios.loader import SPLITS

    return [scenario for split in SPLITS for scenario in load_scenarios(str(out), split)]


async def _offered(
    command: str | None, url: str | None, file: Path | None
) -> tuple[Sequence[Tool], Sequence[Mapping[str, str]]]:
    if file is not None:
        from podium.environments.scenarios.tools_file import read_tools

        return read_tools(file), ()
    from podium.environments.adapters.mcp_session import McpServer, McpSession
    from podium.environments.base import checked_options

    where = {"url": url} if url else {"command": shlex.split(command or "")}
    session = McpSession(checked_options(McpServer, where, "server"))
    try:
        await session.open(_OPEN_SECONDS)
        return session.tools, session.resources
    finally:
        await session.close()
