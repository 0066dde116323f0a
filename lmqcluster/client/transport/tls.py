"""TLS contexts and errors for clients."""

from __future__ import annotations

import ssl
from typing import Final

__all__ = ["SYSTEM", "client_context", "explain"]

SYSTEM: Final = "system"
"""Value that stands for the authorities that the machine trusts, in place of a file."""


def client_context(ca_file: str, cert_file: str | None) -> ssl.SSLContext:
    """Return the TLS context for connections to nodes.

    Args:
        ca_file: the certificate of the authority that signed the nodes' certificates, or `SYSTEM`.
        cert_file: certificate and key to present to nodes that request them.

    Raises:
        OSError: a file cannot be used; this includes `ssl.SSLError`.
    """
    context = ssl.create_default_context(cafile=None if ca_file == SYSTEM else ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file is not None:
        context.load_cert_chain(cert_file)
    return context


def explain(error: OSError) -> str:
    """Describe for the user why a connection failed."""
    reason = str(getattr(error, "reason", ""))
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
        return f"the node does not speak TLS ({reason})"
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return f"the node asks for a client's certificate ({reason})"
    return str(error)
