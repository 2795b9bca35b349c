"""One session with an MCP server: a process of ours, or one behind a URL."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, model_validator

from podium.core.errors import InvalidArgumentError, UnavailableError, Violation
from podium.core.packages import needed
from podium.environments.types import Tool

REQUIREMENT = "mcp>=2.3"

_MOST_PAGES = 100
_LOG_TAIL = 500
_CLOSE_SECONDS = 9.0


class McpServer(BaseModel):
    """Where an MCP server is: a command to start one, or the URL of one that runs."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] = []
    """Program and arguments of a server that speaks over stdin and stdout."""
    env: dict[str, str] = {}
    """Its environment, beside HOME, LOGNAME, PATH, SHELL, TERM and USER; nothing else is passed."""
    url: str = ""
    """Of a server that speaks streamable HTTP: `http://host:8000/mcp`."""
    headers: dict[str, str] = {}
    """Of every request to it."""
    stateless: bool = False
    """Ask first for protocol 2026-07-28, which has no sessions; else the server keeps one for each
    episode."""

    @model_validator(mode="after")
    def _one_way(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("set either command or url")
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError(
                f"url: got {self.url!r}; allowed are URLs such as http://host:8000/mcp"
            )
        if (self.env and self.url) or (self.headers and self.command):
            raise ValueError("env belongs to command, headers to url")
        return self

    @property
    def described(self) -> str:
        """What it is, for people, without its secrets."""
        return (
            f"at {urlsplit(self.url)._replace(query='').geturl()}" if self.url else self.command[0]
        )


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool answered."""

    text: str
    failed: bool = False


class ServerGoneError(Exception):
    """The server ended the session, or died."""


class McpSession:
    """Opened, used from any task, and closed; one task of its own holds the connection."""

    def __init__(self, server: McpServer) -> None:
        """Connects to nothing yet.

        Raises:
            FailedPreconditionError: the package mcp is not installed.
        """
        self._mcp = needed("mcp", REQUIREMENT, "an MCP server")
        self._types = needed("mcp_types", REQUIREMENT, "an MCP server")
        self._server = server
        self._client: Any = None
        self._holding: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._over = asyncio.Event()
        self.tools: Sequence[Tool] = ()
        """What the server offers, in its order."""
        self.resources: Sequence[Mapping[str, str]] = ()
        """Its resources: `uri`, `name` and `description`."""
        self.instructions = ""
        """The server's own words on how to use it."""

    async def open(self, seconds: float) -> None:
        """Starts the server, or connects to it, and asks what it offers.

        Raises:
            InvalidArgumentError: there is no such program.
            UnavailableError: it did not start, or cannot be reached, in this time.
        """
        log = _Log()
        self._opened = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(self._opened, log))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._opened)
        except (FileNotFoundError, PermissionError) as error:
            program = self._server.command[0]
            raise InvalidArgumentError(
                violations=[Violation("command", f"got {program!r}; no program that can be run")]
            ) from error
        except Exception as error:
            late = isinstance(error, TimeoutError)
            why = f"no answer within {seconds:g} seconds" if late else _first(error)
            raise UnavailableError(
                f"the MCP server {self._server.described} cannot be used: {why}{log.tail()}",
                reason="MCP_SERVER_UNAVAILABLE",
            ) from error

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> ToolAnswer:
        """Calls a tool; what goes wrong with the call is an answer too.

        Raises:
            ServerGoneError: there is nobody left to call.
        """
        assert self._holding is not None
        call = asyncio.create_task(self._call(name, arguments, seconds))
        try:
            await asyncio.wait({call, self._holding}, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
        finally:
            call.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await call
        raise ServerGoneError(f"the MCP server {self._server.described} ended the session")

    async def close(self) -> None:
        """Ends the session, and the server where it is ours."""
        self._over.set()
        if self._holding is not None:
            if self._opened is not None and not self._opened.done():
                self._holding.cancel()
            await asyncio.wait([self._holding], timeout=_CLOSE_SECONDS)
            self._holding.cancel()

    async def _hold(self, opened: asyncio.Future[None], log: _Log) -> None:
        # The protocol's cancel scopes must be left by the task that entered them.
        try:
            async with AsyncExitStack() as stack:
                self._client = await stack.enter_async_context(await self._connected(stack, log))
                await self._list()
                if not opened.done():
                    opened.set_result(None)
                await self._over.wait()
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)
        finally:
            log.close()

    async def _connected(self, stack: AsyncExitStack, log: _Log) -> Any:
        server = self._server
        mode = "auto" if server.stateless else "legacy"
        if server.command:
            stdio = needed("mcp.client.stdio", REQUIREMENT, "an MCP server")
            program, *arguments = server.command
            parameters = stdio.StdioServerParameters(
                command=program, args=arguments, env=dict(server.env)
            )
            return self._mcp.Client(stdio.stdio_client(parameters, log.file), mode=mode)
        http = needed("mcp.client.streamable_http", REQUIREMENT, "an MCP server")
        utilities = needed("mcp.shared._httpx_utils", REQUIREMENT, "an MCP server")
        client = utilities.create_mcp_http_client(headers=dict(server.headers))
        await stack.enter_async_context(client)
        return self._mcp.Client(
            http.streamable_http_client(server.url, http_client=client), mode=mode
        )

    async def _list(self) -> None:
        tools = await self._pages(self._client.list_tools, "tools")
        self.tools = [Tool(t.name, t.description or "", dict(t.input_schema)) for t in tools]
        self.instructions = self._client.instructions or ""
        if self._client.server_capabilities.resources is not None:
            self.resources = [
                {"uri": str(r.uri), "name": r.name, "description": r.description or ""}
                for r in await self._pages(self._client.list_resources, "resources")
            ]

    async def _pages(self, method: Any, name: str) -> list[Any]:
        found: list[Any] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await method(cursor=cursor)
            found += getattr(page, name)
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ValueError(f"its list of {name} does not end")

    async def _call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> ToolAnswer:
        try:
            result = await self._client.call_tool(
                name, dict(arguments), read_timeout_seconds=seconds
            )
        except self._mcp.MCPError as error:
            ended = (self._types.INVALID_REQUEST, "Session terminated")
            if error.code == self._types.CONNECTION_CLOSED or (error.code, str(error)) == ended:
                raise ServerGoneError(
                    f"the MCP server {self._server.described} ended the session"
                ) from error
            if error.code == self._types.REQUEST_TIMEOUT:
                return ToolAnswer(f"no answer within {seconds:g} seconds", failed=True)
            return ToolAnswer(error.message, failed=True)
        except (RuntimeError, ValueError) as error:
            # The server's answer is not what its own schema, or the protocol, says.
            return ToolAnswer(f"the tool gave no valid answer: {error}", failed=True)
        return ToolAnswer(_text(result), failed=bool(result.is_error))


def _text(result: Any) -> str:
    parts = []
    for block in result.content:
        match block.type:
            case "text":
                parts.append(block.text)
            case "resource" if hasattr(block.resource, "text"):
                parts.append(block.resource.text)
            case "resource_link":
                parts.append(str(block.uri))
            case kind:
                parts.append(f"({kind}, which cannot be shown)")
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _first(error: BaseException) -> str:
    """What went wrong at the bottom of groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


class _Log:
    """The last words that a server writes on stderr; nothing of them is kept on a disk."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self.file = os.fdopen(write, "w", encoding="utf-8")
        self._last = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read, self._take)

    def _take(self) -> None:
        with suppress(BlockingIOError):
            self._last = (self._last + os.read(self._read, 65536))[-_LOG_TAIL:]

    def tail(self) -> str:
        """For the end of an error's message."""
        text = self._last.decode(errors="replace").strip()
        return f"; it wrote: {text}" if text else ""

    def close(self) -> None:
        """Stops reading; once."""
        self._take()
        self._loop.remove_reader(self._read)
        os.close(self._read)
        self.file.close()
