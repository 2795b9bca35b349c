"""An adapter in a vLLM server that somebody else runs, by vLLM's own calls for it."""

from __future__ import annotations

import json
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from podium.cli.exits import CliError, Exit

if TYPE_CHECKING:
    import httpx

LOAD_SECONDS = 300.0
"""A server may read a large adapter from a slow disk."""
_LONGEST = 400

_NOT_ALLOWED = (
    "Whoever runs it allows that at its start: VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL "
    "--enable-lora."
)
# What vLLM's words hold, and what to do then. Its statuses alone do not tell: a rank that is too
# great is answered with 500.
_HINTS = (
    ("max_lora_rank", "Its --max-lora-rank must be at least the adapter's rank."),
    ("already been loaded", "Replace it with --replace, or choose another --name."),
    ("conflicts with a served base model", "Choose another --name."),
    (
        "No adapter found",
        "The server reads the folder by its own path: name it with --server-path, where it has "
        "another one there.",
    ),
    ("LoRA is not enabled", "Start it with --enable-lora."),
    ("target modules", "Was it trained from the model that this server serves?"),
    ("size mismatch", "Was it trained from the model that this server serves?"),
)


class ForeignServer:
    """A vLLM server's API, at `base`, with the key that it asks for."""

    def __init__(self, client: httpx.AsyncClient, base: str, key: str = "") -> None:
        """Asks nothing yet."""
        self._client = client
        self._base = base
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    async def models(self) -> list[dict[str, Any]]:
        """What it serves: base models and adapters, each with `id` and, of an adapter, `parent`.

        Raises:
            CliError: it cannot be reached, refuses the key, or is no OpenAI API.
        """
        answer = await self._ask("GET", "/models")
        try:
            found = answer.json()["data"]
            return [each for each in found if isinstance(each["id"], str)]
        except (ValueError, KeyError, TypeError) as error:
            raise CliError(
                f"{self._base}/models answered {answer.status_code}, and no list of models",
                "The address is that of vLLM's OpenAI API, such as http://host:8000/v1.",
            ) from error

    async def load(self, name: str, path: PurePosixPath, *, replace: bool) -> None:
        """Has it load the adapter that it finds at `path`.

        Raises:
            CliError: why it does not, in its words.
        """
        body: dict[str, Any] = {"lora_name": name, "lora_path": str(path)}
        if replace:
            body["load_inplace"] = True
        answer = await self._ask("POST", "/load_lora_adapter", body)
        if answer.status_code == 200:
            return
        if answer.status_code in (404, 405) and "No adapter found" not in _words(answer):
            raise CliError(
                f"{self._base} does not let adapters be loaded (HTTP {answer.status_code})",
                _NOT_ALLOWED,
                Exit.CONFLICT,
            )
        raise _refused(self._base, answer)

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> httpx.Response:
        import httpx

        try:
            answer = await self._client.request(
                method, self._base + path, json=body, headers=self._headers
            )
        except httpx.HTTPError as error:
            words = str(error).rstrip(".") or type(error).__name__
            raise CliError(
                f"{self._base} cannot be reached: {words}",
                "Is it running, and is this its address?",
                Exit.UNREACHABLE,
            ) from error
        if answer.status_code in (401, 403):
            raise CliError(
                f"{self._base} refuses the key (HTTP {answer.status_code})",
                "Its --api-key goes into the variable that --key-env names.",
                Exit.AUTH,
            )
        return answer


def api_of(url: str) -> str:
    """The address of the OpenAI API of `url`, up to and including `/v1`.

    Raises:
        CliError: it is no address of a server.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise CliError(
            f"{url!r} is no address of a server",
            "For example http://127.0.0.1:8000/v1.",
            Exit.USAGE,
        )
    base = url.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def key_of(variable: str) -> str:
    """The key in a variable; empty where none is named.

    Raises:
        CliError: the variable is not set.
    """
    if not variable:
        return ""
    if not (found := os.environ.get(variable, "")):
        raise CliError(f"--key-env: {variable} is not set", "", Exit.USAGE)
    return found


def _refused(base: str, answer: httpx.Response) -> CliError:
    words = _words(answer)
    hint = next((hint for part, hint in _HINTS if part in words), "")
    return CliError(
        f"{base} does not load it (HTTP {answer.status_code}): {words}", hint, Exit.CONFLICT
    )


def _words(answer: httpx.Response) -> str:
    try:
        found = answer.json()
        message = found["error"]["message"] if "error" in found else found.get("detail", found)
    except (ValueError, KeyError, TypeError, AttributeError):
        message = answer.text
    text = message if isinstance(message, str) else json.dumps(message)
    return " ".join(text.split())[:_LONGEST] or "without a word"
