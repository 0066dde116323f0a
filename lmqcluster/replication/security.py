"""What peers have to show to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ports import Bounds, ConnectionLimiter, Memory
from .handshake import OLD_VERSION, VERSION, stretched
from .peer_tls import PeerTls

__all__ = ["AUTHENTICATION_S", "PeerSecurity", "Way"]


AUTHENTICATION_S = 5.0
"""How long a dialling node may take to prove that it is a peer."""
CONNECTIONS_MAX = 256
MEMORY_BYTES = 256 * 1024 * 1024
"""Bounds of a port that is not one of a node with bounds for all its ports."""


class Way(NamedTuple):
    """How a peer may be spoken to."""

    tls: bool
    version: int


def _own_gate() -> ConnectionLimiter:
    bounds = Bounds(CONNECTIONS_MAX, CONNECTIONS_MAX, authentication_s=AUTHENTICATION_S)
    return ConnectionLimiter("raft", bounds, Memory(MEMORY_BYTES), lambda _address: True)


@dataclass(slots=True)
class PeerSecurity:
    """One node's part in guarding the peers' port.

    Attributes:
        secret: the cluster secret, empty for none.
        tls: certificate, key and authority for TLS between peers, None for none.
        tls_required: whether peers without TLS are refused; else both are taken, for the time of a change-over.
        gate: how many may connect, and how long they may take to show who they are.
        is_old_allowed: whether version 1 of the handshake is still spoken, because members may know no other.
    """

    secret: bytes = b""
    tls: PeerTls | None = None
    tls_required: bool = True
    gate: ConnectionLimiter = field(default_factory=_own_gate)
    is_old_allowed: Callable[[], bool] = lambda: False

    @property
    def keeps_strangers_out(self) -> bool:
        """Whether somebody who can merely connect is kept out."""
        return bool(self.secret) or (self.tls is not None and self.tls_required)

    @property
    def takes_plain(self) -> bool:
        """Whether peers may speak without TLS."""
        return self.tls is None or not self.tls_required

    def key(self) -> bytes:
        """The stretched secret."""
        return stretched(self.secret)

    def ways(self) -> Iterator[Way]:
        """How to speak to a peer of which nothing is known, the best first."""
        if self.tls is not None:
            yield Way(tls=True, version=VERSION)
        if self.takes_plain:
            yield Way(tls=False, version=VERSION)
            if self.is_old_allowed():
                yield Way(tls=False, version=OLD_VERSION)
