"""Mutual TLS between services: who calls and who answers both show a certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc

from podium.core.errors import InvalidArgumentError, Violation


@dataclass(frozen=True)
class Tls:
    """One side, in PEM."""

    certificate: bytes
    """Its own, with what leads from it to an authority."""
    key: bytes = field(repr=False)
    authorities: bytes
    """Whose certificates it takes from the other side."""

    @classmethod
    def load(cls, certificate: Path, key: Path, authorities: Path) -> Tls:
        """Reads the files; they are read once, so a renewed certificate needs a new process.

        Raises:
            InvalidArgumentError: a file cannot be read, or is no PEM.
        """
        files = {"certificate": certificate, "key": key, "authorities": authorities}
        found, wrong = {}, []
        for name, path in files.items():
            try:
                found[name] = path.read_bytes()
            except OSError as error:
                wrong.append(Violation(f"tls_{name}_file", f"got {str(path)!r}: {error.strerror}"))
                continue
            if b"-----BEGIN " not in found[name]:
                wrong.append(Violation(f"tls_{name}_file", f"got {str(path)!r}, which is no PEM"))
        if wrong:
            raise InvalidArgumentError(violations=wrong)
        return cls(**found)

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port that takes only callers with a certificate of the authorities."""
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.authorities,
            require_client_auth=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel to such a port."""
        return grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)
