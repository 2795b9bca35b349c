"""Who may call over HTTP: the services' callers by their tokens, agents by keys of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from podium.core import rollout_keys
from podium.kit.rpc.watched_files import TokensFile, is_one_of

Secrets = Callable[[], tuple[str, ...]]


class Keys:
    """The secrets of the HTTP API; without any, everybody may call."""

    def __init__(self, *sources: Secrets) -> None:
        """Each is asked at every request."""
        self._sources = sources

    @classmethod
    def of(cls, tokens: Path | None, api_keys: Path | None, variable: str = "") -> Keys:
        """Those that a service's settings name.

        Args:
            tokens: the file of tokens that open gRPC too.
            api_keys: the file of keys that open HTTP alone.
            variable: one more such key; empty for none.

        Raises:
            FailedPreconditionError: a file cannot be read or holds nothing. Where there are tokens,
                that of the agents' keys may be missing.
        """
        sources: list[Secrets] = []
        if tokens is not None:
            sources.append(TokensFile(tokens).current)
        if api_keys is not None:
            # Without tokens a missing file would leave the door open.
            sources.append(TokensFile(api_keys, optional=tokens is not None).current)
        if variable:
            sources.append(lambda: (variable,))
        return cls(*sources)

    def admit(self, presented: Iterable[str]) -> bool:
        """Whether any of what a request presents lets it in."""
        secrets = self._secrets()
        return not secrets or any(
            is_one_of(key, secrets) or self._verified(key, secrets) for key in presented
        )

    def rollout(self, presented: Iterable[str]) -> str:
        """The rollout's key among what a request presents; empty for none."""
        secrets = self._secrets()
        return next(filter(None, (self._verified(key, secrets) for key in presented)), "")

    def _secrets(self) -> tuple[str, ...]:
        return tuple(secret for source in self._sources for secret in source())

    def _verified(self, key: str, secrets: tuple[str, ...]) -> str:
        if not key.startswith(rollout_keys.PREFIX):
            return ""
        # Whose signature is right has a secret, or had it from somebody who has.
        found = (rollout_keys.verified(key, secret) for secret in secrets or ("",))
        return next(filter(None, found), "")


def presented(headers: Mapping[bytes, bytes]) -> list[str]:
    """What a request shows: OpenAI's clients a bearer token, Anthropic's an `x-api-key`."""
    scheme, _, bearer = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    keys = [bearer.strip() if scheme.lower() == "bearer" else ""]
    keys.append(headers.get(b"x-api-key", b"").decode("latin-1").strip())
    return [key for key in keys if key]
