"""How a pipeline reaches a cluster: addresses, credentials and patience, as options of the data source."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Access"]


@dataclass(frozen=True, kw_only=True)
class Access:
    """A cluster.

    Attributes:
        servers: MessagePack-RPC addresses, ``host:port,host:port``.
        token: the secret to show; ``None`` for none.
        token_file: file on the driver that holds it, instead.
        tls_ca: file with the certificate of the nodes' authority, or ``system``: use TLS.
        tls_cert: file with the certificate and key to show.
        timeout_s: how long a call may take over all attempts and nodes; ``None`` for the data source's default.
        environment: whether what is not given comes from the environment.
    """

    servers: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    timeout_s: float | None = None
    environment: bool = True

    def options(self) -> dict[str, str]:
        """The options of a read or write."""
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
