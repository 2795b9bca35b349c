"""An MCP server to train on: a stockroom, which knows what no model can know.

`python stockroom.py` speaks over stdin and stdout, `python stockroom.py 8000` over HTTP at /mcp. A
part is a letter and three digits; what is true of it follows from that. It knows nothing of Podium.
"""

from __future__ import annotations

import random
import re
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("stockroom", log_level="WARNING")


def fact(what: str, part: str) -> int:
    """The shelf, the stock or the price of a part: a number of three digits."""
    return random.Random(f"{what} {part}").randint(100, 999)


def _known(part: str) -> str:
    if not re.fullmatch("[A-Z][0-9]{3}", part):
        raise ToolError(f"there is no part {part!r}")
    return part


@server.tool()
def get_shelf(part: str) -> int:
    """Says on which shelf a part lies."""
    return fact("shelf", _known(part))


@server.tool()
def get_stock(part: str) -> int:
    """Says how many of a part there are."""
    return fact("stock", _known(part))


@server.tool()
def get_price(part: str) -> int:
    """Says what a part costs."""
    return fact("price", _known(part))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
