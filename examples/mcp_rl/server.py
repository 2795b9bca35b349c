"""An MCP server to train on: a second-hand bookshop that keeps books for its customers.

`python server.py` speaks over stdin and stdout, `python server.py 8000` over HTTP at /mcp. Every
session has a shop of its own. It knows nothing of Podium.
"""

from __future__ import annotations

import sys
from collections import defaultdict

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

BOOKS = {
    "b1": ("The Salt Road", "Ida Marsh", "travel", 7),
    "b2": ("Bread and Patience", "Tomas Lindqvist", "cooking", 12),
    "b3": ("A Field Guide to Moss", "Ida Marsh", "nature", 15),
    "b4": ("Small Engines", "Priya Nair", "repair", 9),
    "b5": ("The Lighthouse Accounts", "Oskar Brandt", "novel", 6),
    "b6": ("Soup for Winter", "Tomas Lindqvist", "cooking", 8),
    "b7": ("Night Trains", "Hana Sato", "travel", 11),
    "b8": ("The Quiet Orchard", "Hana Sato", "novel", 5),
    "b9": ("Mending Clothes", "Priya Nair", "repair", 4),
    "b10": ("Birds at the Window", "Lena Okafor", "nature", 10),
}

server = MCPServer(
    "bookshop",
    instructions="Prices are in crowns. A reservation needs the customer's name.",
    log_level="WARNING",
)
_reservations: defaultdict[str, dict[str, str]] = defaultdict(dict)


def _reserved(ctx: Context) -> dict[str, str]:
    return _reservations[(ctx.headers or {}).get("mcp-session-id", "")]


def _known(book_id: str) -> str:
    if book_id not in BOOKS:
        raise ToolError(f"there is no book {book_id!r}")
    return book_id


@server.tool()
def search_books(author: str = "", subject: str = "") -> str:
    """Finds books by author, subject (travel, cooking, nature, repair, novel), or both."""
    found = [
        f"{book_id}: {title}, by {writer}"
        for book_id, (title, writer, about, _) in BOOKS.items()
        if author.lower() in writer.lower() and subject.lower() in about
    ]
    return "\n".join(found) or "no book"


@server.tool()
def get_price(book_id: str) -> int:
    """Says what a book costs, by its id."""
    return BOOKS[_known(book_id)][3]


@server.tool()
def reserve_book(book_id: str, customer: str, ctx: Context) -> str:
    """Keeps a book for a customer."""
    holder = _reserved(ctx).setdefault(_known(book_id), customer)
    if holder != customer:
        raise ToolError(f"{book_id} is kept for {holder}")
    return f"{book_id} is kept for {customer}"


@server.tool()
def list_reservations(ctx: Context) -> str:
    """Lists the books that are kept, and for whom."""
    kept = [f"{book_id}: {customer}" for book_id, customer in _reserved(ctx).items()]
    return "\n".join(kept) or "none"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
