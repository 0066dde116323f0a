"""The cluster of a pipeline: addresses, credentials and timeout, as options of the data source."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Access"]


@dataclass(frozen=True, kw_only=True)
class Access:
    """A cluster.

    Attributes:
        servers: MessagePack-RPC addresses, ``host:port,host:port``.
        token: the secret; ``None`` for none.
        token_file: file on the driver with the token, instead.
        tls_ca: file with the certificate of the nodes' authority, or ``system``; enables TLS.
        tls_cert: file with the client certificate and key.
        timeout_s: maximum time of a call over all attempts and nodes; ``None`` for the data source's default.
        environment: whether missing values come from the environment.
    """

    servers: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    timeout_s: float | None = None
    environment: bool = True

    def options(self) -> dict[str, str]:
        """Return the options of a read or write."""
        options = {
            "lmq.servers": self.servers,
            "lmq.timeout": None if self.timeout_s is None else str(self.timeout_s),
            "lmq.token": self.token,
            "lmq.token.file": self.token_file,
            "lmq.tls.ca": self.tls_ca,
            "lmq.tls.cert": self.tls_cert,
            "lmq.environment": None if self.environment else "false",
        }
        return {name: value for name, value in options.items() if value is not None}
