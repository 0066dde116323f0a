"""The certificates of a cluster: its own authority, and a certificate for each node."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lmqcluster.replication.peers.tls import NODE_MARK

from .errors import CliError, ExitCode, cannot_write

__all__ = ["Authority", "write_new"]

CA_DAYS: Final = 3650
_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_CLOCK_SKEW: Final = timedelta(minutes=5)
_CERT, _KEY = "ca.crt", "ca.key"


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.folder = folder
        self._cert = cert
        self._key = key

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """Create an authority; write ``ca.crt`` and ``ca.key``.

        Raises:
            CliError: a file already exists or cannot be written.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lmqcluster authority")])
        builder = _begun(name, name, key.public_key(), CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        cert = builder.sign(key, hashes.SHA256())
        write_new(folder / _KEY, _key_bytes(key), secret=True)
        write_new(folder / _CERT, _cert_bytes(cert), secret=False)
        return cls(folder, cert, key)

    @classmethod
    def open(cls, folder: Path) -> Authority | None:
        """Load the authority of a folder; return None if there is none.

        Raises:
            CliError: its files cannot be read.
        """
        if not (folder / _CERT).exists() and not (folder / _KEY).exists():
            return None
        try:
            cert = x509.load_pem_x509_certificate((folder / _CERT).read_bytes())
            key = serialization.load_pem_private_key((folder / _KEY).read_bytes(), None)
        except (OSError, ValueError, TypeError) as exc:
            raise CliError(f"cannot use the authority in {folder}: {exc}", ExitCode.BAD_DATA) from exc
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CliError(f"{folder / _KEY} is not a key created by lmq-admin tls init", ExitCode.BAD_DATA)
        return cls(folder, cert, key)

    def issue(self, name: str, hosts: Iterable[str], days: int, *, replace: bool) -> list[Path]:
        """Write ``NAME.crt`` and ``NAME.key``, for a node as server and as client; return the two files.

        Args:
            name: of the files and in the certificate.
            hosts: names and addresses by which clients reach the node.
            days: how long the certificate is valid.
            replace: whether to overwrite existing files.

        Raises:
            CliError: a host is neither a name nor an address; or a file already exists or cannot be written.
        """
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        # Peers recognise the certificate of a node by this.
        names.append(x509.UniformResourceIdentifier(NODE_MARK + name))
        alternatives = x509.SubjectAlternativeName(names)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        builder = _begun(subject, self._cert.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        builder = builder.add_extension(alternatives, critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        cert = builder.sign(self._key, hashes.SHA256())
        files = [self.folder / f"{name}.crt", self.folder / f"{name}.key"]
        write_new(files[1], _key_bytes(key), secret=True, replace=replace)
        write_new(files[0], _cert_bytes(cert), secret=False, replace=replace)
        return files


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _NAME.fullmatch(host):
        raise CliError(f"{host!r} is neither a host name nor an IP address", ExitCode.USAGE)
    return x509.DNSName(host)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _cert_bytes(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def write_new(path: Path, data: bytes, *, secret: bool, replace: bool = False) -> None:
    """Write a new file, or atomically replace an existing one; only the owner can read a secret file.

    Raises:
        CliError: the file already exists or cannot be written.
    """
    mode = 0o600 if secret else 0o644
    target = path.with_name(f".{path.name}.new") if replace else path
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL), mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if replace:
            target.replace(path)
    except FileExistsError as exc:
        raise CliError(f"{path} already exists", ExitCode.USAGE) from exc
    except OSError as exc:
        raise cannot_write(path, exc) from exc
