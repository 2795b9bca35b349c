"""Mutual TLS between services: who calls and who answers both show a certificate."""

from __future__ import annotations

import codecs
import logging
import ssl
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from podium.core.errors import InvalidArgumentError, Violation
from podium.kit.rpc.metrics import CERTIFICATE
from podium.kit.rpc.validity import validity
from podium.kit.rpc.watched_files import WatchedFiles

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tls:
    """One side, in PEM."""

    certificate: bytes
    """Its own, with what leads from it to an authority."""
    key: bytes = field(repr=False)
    authorities: bytes
    """Whose certificates it takes from the other side."""
    files: WatchedFiles[Tls] | None = field(default=None, repr=False, compare=False)
    """Where it comes from, read again when they change; None for one that stays as it is."""

    @classmethod
    def load(cls, certificate: Path, key: Path, authorities: Path) -> Tls:
        """Reads the files, and again when they change: what is served and what is dialled then
        shows the new certificate from the next connection on.

        Raises:
            InvalidArgumentError: a file cannot be read, is no PEM or is broken, or the key is
                another certificate's or has a passphrase.
        """
        paths = (certificate, key, authorities)
        first = cls._read(*paths)
        files: WatchedFiles[Tls] = WatchedFiles(paths, lambda: cls._read_pair(*paths))
        return replace(first, files=files)

    @classmethod
    def _read_pair(cls, certificate: Path, key: Path, authorities: Path) -> Tls:
        """As `load`, and raises where one file is renewed and the other is not yet."""
        found = cls._read(certificate, key, authorities)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        wrong = []
        if b"ENCRYPTED" in found.key:
            # OpenSSL would ask the terminal for it.
            wrong.append(Violation("tls_key_file", f"got {str(key)!r}, which has a passphrase"))
        else:
            try:
                context.load_cert_chain(certificate, key)
            except (ssl.SSLError, OSError):
                problem = f"got {str(key)!r}: no key of {str(certificate)!r}"
                wrong.append(Violation("tls_key_file", problem))
        try:
            context.load_verify_locations(authorities)
        except (ssl.SSLError, OSError):
            problem = f"got {str(authorities)!r}, of which a certificate is broken"
            wrong.append(Violation("tls_authorities_file", problem))
        if wrong:
            raise InvalidArgumentError(violations=wrong)
        _tell_validity(found.certificate, certificate)
        return found

    @classmethod
    def _read(cls, certificate: Path, key: Path, authorities: Path) -> Tls:
        files = {"certificate": certificate, "key": key, "authorities": authorities}
        found, wrong = {}, []
        for name, path in files.items():
            try:
                # gRPC finds nothing behind a mark of byte order.
                found[name] = path.read_bytes().removeprefix(codecs.BOM_UTF8)
            except OSError as error:
                wrong.append(Violation(f"tls_{name}_file", f"got {str(path)!r}: {error.strerror}"))
                continue
            if b"-----BEGIN " not in found[name]:
                wrong.append(Violation(f"tls_{name}_file", f"got {str(path)!r}, which is no PEM"))
        if wrong:
            raise InvalidArgumentError(violations=wrong)
        return cls(found["certificate"], found["key"], found["authorities"])

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port that takes only callers with a certificate of the authorities."""
        last = self.files.current() if self.files is not None else self

        # Asked at every handshake, on a thread of gRPC's; None, for no change, is not in its types.
        def fetch() -> Any:
            nonlocal last
            now = self.files.current() if self.files is not None else last
            if now is last:
                return None
            last = now
            return now._configuration()

        return grpc.dynamic_ssl_server_credentials(
            last._configuration(), fetch, require_client_authentication=True
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificate)], root_certificates=self.authorities
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel to such a port."""
        return grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)


def _tell_validity(pem: bytes, path: Path) -> None:
    try:
        begin, end = validity(pem)
    except ValueError:
        # OpenSSL has taken it.
        return
    for bound, moment in (("start", begin), ("end", end)):
        CERTIFICATE.labels(bound).set(moment.timestamp())
    now = datetime.now(UTC)
    if not begin <= now <= end:
        logger.error(
            "no peer takes the certificate %s: it is valid from %s to %s, and it is %s",
            path,
            *(f"{moment:%Y-%m-%d %H:%M} UTC" for moment in (begin, end, now)),
        )
