"""Named installations, as `podium login` saves them in the user's configuration folder.

`contexts.yaml` there names addresses and where tokens are; it holds no token. One that was typed is
in `tokens/NAME`, which its owner alone may read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from podium.core.errors import InvalidArgumentError, NotFoundError, Violation
from podium.core.homes import home

if TYPE_CHECKING:
    from podium.kit.rpc.tls import Tls

FOLDER = "PODIUM_CONFIG_DIR"
"""Environment variable: the configuration folder, in place of the user's own."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
KindT = TypeVar("KindT", bound=BaseModel)


def _host_and_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or " " in text:
        raise ValueError("allowed is host:port")
    return text


_Address = Annotated[str, AfterValidator(_host_and_port)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Kubernetes(_Strict):
    """A release of the chart, reached through the API server of its cluster."""

    context: str = ""
    """Of the kubeconfig; empty for the one that kubectl uses."""
    namespace: str = Field("podium", min_length=1)
    release: str = Field("podium", min_length=1)
    pool: str = ""
    """Whose policies; empty for the one that serves jobs."""


class ServiceAddresses(_Strict):
    """`host:port` of each service that has an address."""

    controller: _Address | None = None
    registry: _Address | None = None
    inference: _Address | None = None
    rollout: _Address | None = None
    judge: _Address | None = None


class TlsFiles(_Strict):
    """Mutual TLS with the services: PEM files, beside the contexts unless they are absolute."""

    certificate_file: str = Field(min_length=1)
    key_file: str = Field(min_length=1)
    authorities_file: str = Field(min_length=1)
    """Whose certificates are taken from the services."""
    server_name: str = ""
    """Whose certificate it must be; empty for the host of the address, and for `localhost` through
    Kubernetes."""

    def load(self) -> Tls:
        """Reads the files.

        Raises:
            InvalidArgumentError: one cannot be read, or is no PEM.
        """
        from podium.kit.rpc.tls import Tls

        named = (self.certificate_file, self.key_file, self.authorities_file)
        return Tls.load(*(folder() / file for file in named))


class Context(_Strict):
    """One installation: what has no address is reached through Kubernetes."""

    addresses: ServiceAddresses = ServiceAddresses()
    kubernetes: Kubernetes | None = None
    tls: TlsFiles | None = None
    """None for plain text."""
    token_env: str = ""
    """Environment variable with the token."""
    token_file: str = ""
    """File with the token; beside the contexts unless it is absolute."""

    def token(self, name: str) -> str:
        """The token that the context of that name refers to; empty where it refers to none.

        Raises:
            InvalidArgumentError: the variable is not set, or the file cannot be read or others
                may read it.
        """
        if self.token_env:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                raise _broken(
                    f"contexts.{name}.token_env", f"the variable {self.token_env} is not set"
                )
            return token
        if not self.token_file:
            return ""
        return _read_token(folder() / self.token_file, f"contexts.{name}.token_file")


class Contexts(_Strict):
    """All contexts, by name."""

    current: str = ""
    """The one in use; empty for none."""
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """A context by name.

        Raises:
            NotFoundError: there is none.
        """
        if name not in self.contexts:
            known = ", ".join(self.contexts) or "none"
            raise NotFoundError(
                f"there is no context {name!r}; there are: {known}",
                reason="NO_CONTEXT",
                metadata={"context": name},
            )
        return self.contexts[name]


def folder() -> Path:
    """The user's configuration folder of Podium."""
    if given := os.environ.get(FOLDER, ""):
        return Path(given).absolute()
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base else home() / ".config") / "podium"


def path() -> Path:
    """The file of contexts."""
    return folder() / "contexts.yaml"


def load() -> Contexts:
    """All saved contexts; none where there is no file.

    Raises:
        InvalidArgumentError: the file cannot be read, or naming what is wrong in it.
    """
    try:
        raw = yaml.safe_load(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise _broken("", f"cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _broken("", f"is not YAML: {error.problem}", line) from None
    except yaml.YAMLError as error:
        raise _broken("", f"is not YAML: {error}") from None
    return checked(Contexts, {} if raw is None else raw, f"{path()}: ")


def checked(kind: type[KindT], raw: Any, prefix: str = "") -> KindT:
    """A context, or all of them, from plain data.

    Raises:
        InvalidArgumentError: naming each wrong field, with `prefix` before it.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise InvalidArgumentError(
            violations=[
                Violation(
                    (prefix + ".".join(map(str, wrong["loc"]))).removesuffix(": "),
                    # Its value is not shown: it may be a token that was put there by mistake.
                    "unknown key"
                    if wrong["type"] == "extra_forbidden"
                    else f"got {wrong['input']!r}: {wrong['msg']}",
                )
                for wrong in error.errors(include_url=False)
            ]
        ) from None


def save(contexts: Contexts) -> None:
    """Replaces the file in one move."""
    _write(path(), yaml.safe_dump(contexts.model_dump(exclude_defaults=True), sort_keys=False))


def keep_token(name: str, token: str) -> str:
    """Keeps a token for a context, readable by its owner alone; returns its `token_file`."""
    relative = f"tokens/{check_name(name)}"
    _write(folder() / relative, token + "\n")
    return relative


def forget_token(name: str) -> None:
    """Deletes the token that is kept for a context, if there is one."""
    (folder() / "tokens" / check_name(name)).unlink(missing_ok=True)


def check_name(name: str) -> str:
    """The name, if a context may have it.

    Raises:
        InvalidArgumentError: it may not.
    """
    if not _NAME.fullmatch(name):
        allowed = "up to 63 letters, digits and . _ -, the first a letter or digit"
        raise InvalidArgumentError(
            violations=[Violation("context", f"got {name!r}; allowed are {allowed}")]
        )
    return name


def _read_token(file: Path, field: str) -> str:
    try:
        mode = file.stat().st_mode & 0o777
        # Other files are somebody else's to guard: a mounted Secret is its group's too.
        if mode & 0o077 and file.is_relative_to(folder()):
            raise _broken(
                field,
                f"others may read {file} (mode {mode:04o}); 'chmod 600' it, and change the token "
                "if they have",
            )
        token = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(field, f"cannot be read: {error}") from None
    if not token:
        raise _broken(field, f"{file} is empty")
    return token


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as out:
        out.write(text)
    draft.replace(file)


def _broken(field: str, what: str, line: int = 0) -> InvalidArgumentError:
    where = f"{path()}: {field}" if field else str(path())
    return InvalidArgumentError(violations=[Violation(where, what, line)])
