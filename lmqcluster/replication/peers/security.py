"""Credentials that peers require of each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...ports import Bounds, ConnectionLimiter, Memory
from .handshake import stretched
from .tls import PeerTls

__all__ = ["AUTHENTICATION_S", "PeerSecurity"]


AUTHENTICATION_S = 5.0
"""How long a dialling node may take to prove that it is a peer."""
CONNECTIONS_MAX = 256
MEMORY_BYTES = 256 * 1024 * 1024
"""Bounds of a port without a node whose bounds cover all its ports."""


def _own_gate() -> ConnectionLimiter:
    bounds = Bounds(CONNECTIONS_MAX, CONNECTIONS_MAX, authentication_s=AUTHENTICATION_S)
    return ConnectionLimiter("raft", bounds, Memory(MEMORY_BYTES), lambda _address: True)


@dataclass(slots=True)
class PeerSecurity:
    """One node's protection of the peers' port.

    Attributes:
        secret: the cluster secret, empty for none.
        tls: certificate, key and authority for TLS between peers, None for none.
        tls_required: whether peers without TLS are refused; otherwise both are accepted, during a migration.
        gate: how many peers may connect, and how long they may take to authenticate.
    """

    secret: bytes = b""
    tls: PeerTls | None = None
    tls_required: bool = True
    gate: ConnectionLimiter = field(default_factory=_own_gate)

    @property
    def keeps_strangers_out(self) -> bool:
        """Return whether a client that can merely connect is rejected."""
        return bool(self.secret) or (self.tls is not None and self.tls_required)

    @property
    def takes_plain(self) -> bool:
        """Return whether peers may connect without TLS."""
        return self.tls is None or not self.tls_required

    def key(self) -> bytes:
        """Return the stretched secret."""
        return stretched(self.secret)

    def tls_choices(self) -> Iterator[PeerTls | None]:
        """Yield TLS or None for plain TCP, in the order in which to dial an unknown peer."""
        if self.tls is not None:
            yield self.tls
        if self.takes_plain:
            yield None
