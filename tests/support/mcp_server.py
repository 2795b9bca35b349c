"""A real MCP server, written with the package mcp: a notebook, and tools that misbehave.

`python mcp_server.py` speaks over stdin and stdout, `python mcp_server.py PORT` over HTTP. It
knows nothing of Podium. Each session has a notebook of its own.
"""

import asyncio
import os
import sys
from collections import defaultdict

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notebook", instructions="Keeps notes.", log_level="WARNING")
_notebooks: defaultdict[str, dict[str, str]] = defaultdict(dict)


def notes(ctx: Context) -> dict[str, str]:
    # A process that speaks over stdin and stdout has one session, and no headers.
    return _notebooks[(ctx.headers or {}).get("mcp-session-id", "")]


@server.tool()
def add_note(title: str, text: str, ctx: Context) -> str:
    """Adds a note, or replaces the one of that title."""
    notes(ctx)[title] = text
    return f"added {title!r}"


@server.tool()
def read_note(title: str, ctx: Context) -> str:
    """Reads a note."""
    if title not in notes(ctx):
        raise ToolError(f"there is no note {title!r}")
    return notes(ctx)[title]


@server.tool()
def list_notes(ctx: Context) -> list[str]:
    """Lists the titles of all notes."""
    return sorted(notes(ctx))


@server.tool()
async def sleep(seconds: float) -> str:
    """Answers late."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def long_text(length: int) -> str:
    """Answers at length."""
    return "x" * length


@server.tool()
def environment(name: str) -> str:
    """Reads a variable of the server's process."""
    return os.environ.get(name, "(not set)")


@server.tool()
def crash() -> str:
    """Ends the server's process."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
