"""TLS as clients use it."""

from __future__ import annotations

import ssl
from typing import Final

__all__ = ["SYSTEM", "client_context", "explain"]

SYSTEM: Final = "system"
"""In place of a file: the authorities that the machine trusts."""


def client_context(ca_file: str, cert_file: str | None) -> ssl.SSLContext:
    """What a client needs to talk to nodes that speak TLS.

    Args:
        ca_file: the certificate of the authority that nodes have theirs from, or `SYSTEM`.
        cert_file: certificate and key to show to nodes that ask for one.

    Raises:
        OSError: a file cannot be used; an `ssl.SSLError` is one.
    """
    context = ssl.create_default_context(cafile=None if ca_file == SYSTEM else ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file is not None:
        context.load_cert_chain(cert_file)
    return context


def explain(error: OSError) -> str:
    """Why a connection could not be made, for people."""
    reason = str(getattr(error, "reason", ""))
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
        return f"the node does not speak TLS ({reason})"
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return f"the node asks for a client's certificate ({reason})"
    return str(error)
