"""Tokens and certificates from files, read again when the files change."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from podium.core.errors import FailedPreconditionError, PodiumError
from podium.core.secrets import of_header

logger = logging.getLogger(__name__)

T = TypeVar("T")
Token = str | Callable[[], str]
"""A bearer token, or what says which is in force now; an empty one is none."""


class WatchedFiles(Generic[T]):
    """What some files say together.

    Looked at whenever it is asked for, as the cost is a `stat`. What cannot be used is logged once
    and changes nothing: a file may be seen half written, and who replaces several does so one
    after the other. It is read again until it can be, for a right to read it changes no `stat`.
    """

    def __init__(self, paths: Sequence[Path], load: Callable[[], T]) -> None:
        """Reads them; what `load` raises is raised here, and later logged."""
        self._paths = tuple(paths)
        self._load = load
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._refused = ""
        self._value = load()

    def current(self) -> T:
        """What they say now, or said when they last could be used."""
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen or self._refused:
                self._seen = stamp
                self._read_again()
            return self._value

    def _read_again(self) -> None:
        try:
            self._value = self._load()
        except PodiumError as error:
            if error.message != self._refused:
                logger.error("what was read before stays in force: %s", error.message)
            self._refused = error.message
        else:
            logger.info("read again: %s", ", ".join(map(str, self._paths)))
            self._refused = ""

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp, self._paths))


class TokensFile(WatchedFiles[tuple[str, ...]]):
    """Tokens that callers may present, one a line; blank lines and `#` lines do not count."""

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        """Reads it. An `optional` file may be missing or empty, which is no token.

        Raises:
            FailedPreconditionError: the file cannot be read or holds no token, or one that no
                caller could present.
        """

        def load() -> tuple[str, ...]:
            if optional and not path.exists():
                return ()
            lines = [line.strip() for line in _text(path, "tokens").splitlines()]
            tokens = tuple(
                _of_file(line, f"line {number} of the tokens file {path}")
                for number, line in enumerate(lines, 1)
                if line and not line.startswith("#")
            )
            if not tokens and not optional:
                raise FailedPreconditionError(
                    f"there is no token in {path} that a caller could present"
                )
            return tokens

        super().__init__([path], load)


class TokenFile(WatchedFiles[str]):
    """The one token that a client presents; a `Token`."""

    def __init__(self, path: Path) -> None:
        """Reads it.

        Raises:
            FailedPreconditionError: the file cannot be read, is empty or holds more than a token.
        """

        def load() -> str:
            token = _of_file(_text(path, "token"), f"the token file {path}")
            if not token:
                raise FailedPreconditionError(f"the token file {path} is empty")
            return token

        super().__init__([path], load)

    def __call__(self) -> str:
        """The token in force."""
        return self.current()


def is_one_of(given: str, tokens: Iterable[str]) -> bool:
    """Whether a token is among others, without telling by the time it takes how near it is."""
    # Digests have one length, so comparing them tells nothing about a token's; and no short cut:
    # every one is compared, whichever matches.
    digest = _digest(given)
    found = [hmac.compare_digest(digest, _digest(token)) for token in tokens]
    return any(found)


def token_now(token: Token) -> str:
    """The token to present at this moment."""
    return token if isinstance(token, str) else token()


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise FailedPreconditionError(f"cannot read the {what} file {path}: {why}") from error


def _of_file(text: str, where: str) -> str:
    try:
        return of_header(text)
    except ValueError as error:
        raise FailedPreconditionError(f"{where} {error}") from None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
