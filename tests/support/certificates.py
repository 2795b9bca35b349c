"""Certificates of an authority that a test makes up."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs what it is told to."""

    def __init__(self, name: str, *, identified: bool = True) -> None:
        """Without `identified` a certificate does not say which key signed it, as some do not."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._identified = identified
        self._certificate = _signed(
            self._name, self._name, self._key, self._key, authority=True, identified=identified
        )

    @property
    def pem(self) -> bytes:
        return _pem(self._certificate)

    def issue(self, folder: Path, *names: str, end: datetime.timedelta = _DAY) -> dict[str, Path]:
        """Files of a certificate for DNS names and addresses: certificate, key, authorities.

        Args:
            end: from now; it begins a day before that and now.
        """
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        made = _signed(
            _named(names[0]),
            self._name,
            key,
            self._key,
            names=names,
            identified=self._identified,
            end=end,
        )
        written = {
            "certificate": _pem(made),
            "key": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            "authorities": self.pem,
        }
        paths = {}
        for name, text in written.items():
            paths[name] = folder / f"{name}.pem"
            paths[name].write_bytes(text)
        return paths


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
    *,
    names: tuple[str, ...] = (),
    authority: bool = False,
    identified: bool,
    end: datetime.timedelta = _DAY,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + end) - _DAY)
        .not_valid_after(now + end)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if identified:
        # Without these Python takes none from 3.13 on, unless it is told to.
        ours = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        theirs = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
        builder = builder.add_extension(ours, critical=False).add_extension(theirs, critical=False)
    if authority:
        builder = builder.add_extension(_SIGNS, critical=True)
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
        )
    return builder.sign(by, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
