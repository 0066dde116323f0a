"""Memory that a node holds for its clients: incomplete requests, decoded values and unread answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .client import Client

__all__ = ["VALUE_BYTES", "Memory"]

MiB: Final = 1024 * 1024
VALUE_BYTES: Final = 80
"""Memory counted for each decoded value, in addition to its bytes on the wire: about the size of an empty map in a
list.
"""
UNAUTHENTICATED_BYTES_MAX: Final = 32 * MiB
CLIENTS_BYTES_MIN: Final = 256 * MiB
CLIENTS_BYTES_MAX: Final = 512 * MiB


class Memory:
    """The memory budget of all ports of a node.

    Attributes:
        unauthenticated_bytes_max: for all unauthenticated connections together.
        client_bytes_max: for one client on one port; at least one request of the largest size fits.
        clients_bytes_max: for all authenticated connections together.
        unauthenticated_bytes: held for unauthenticated connections.
        clients_bytes: held for authenticated connections.
    """

    def __init__(self, machine_bytes: int) -> None:
        """Derive the limits from the memory of the machine: clients get an eighth, 256 to 512 MiB, and one client half
        of that.
        """
        self.unauthenticated_bytes_max = UNAUTHENTICATED_BYTES_MAX
        self.clients_bytes_max = min(max(CLIENTS_BYTES_MIN, machine_bytes // 8), CLIENTS_BYTES_MAX)
        self.client_bytes_max = self.clients_bytes_max // 2
        self.unauthenticated_bytes = 0
        self.clients_bytes = 0

    def has_room(self, client: Client | None, more: int) -> bool:
        """Return whether a connection of `client`, None for an unauthenticated one, may hold `more` bytes in addition."""
        if client is None:
            return self.unauthenticated_bytes + more <= self.unauthenticated_bytes_max
        return client.held_bytes + more <= self.client_bytes_max and self.clients_bytes + more <= self.clients_bytes_max

    def add(self, client: Client | None, more: int) -> None:
        """Change the number of bytes held for a connection by `more`, which may be negative."""
        if client is None:
            self.unauthenticated_bytes += more
            return
        client.held_bytes += more
        self.clients_bytes += more
        if more < 0:
            client.wake()
