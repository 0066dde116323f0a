"""Bytes that a node holds for its clients: unfinished requests, decoded values, answers that wait to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .place import Place

__all__ = ["VALUE_BYTES", "Memory"]

MiB: Final = 1024 * 1024
VALUE_BYTES: Final = 80
"""What a decoded value counts, besides its bytes on the wire: an empty map with its place in a list takes about as much."""
STRANGERS_BYTES_MAX: Final = 32 * MiB
CLIENTS_BYTES_MIN: Final = 256 * MiB
CLIENTS_BYTES_MAX: Final = 512 * MiB


class Memory:
    """One budget for all ports of a node.

    Attributes:
        strangers_bytes_max: for all clients together that have not said who they are.
        client_bytes_max: for one client on one port: room for at least one request of the largest size.
        clients_bytes_max: for all clients together that have said who they are.
        strangers_bytes: what the strangers use.
        clients_bytes: what the others use.
    """

    def __init__(self, machine_bytes: int) -> None:
        """Take the memory of the machine: clients get an eighth of it, 256 to 512 MiB, one of them half of that."""
        self.strangers_bytes_max = STRANGERS_BYTES_MAX
        self.clients_bytes_max = min(max(CLIENTS_BYTES_MIN, machine_bytes // 8), CLIENTS_BYTES_MAX)
        self.client_bytes_max = self.clients_bytes_max // 2
        self.strangers_bytes = 0
        self.clients_bytes = 0

    def has_room(self, place: Place, more: int) -> bool:
        """Whether a connection may take so many bytes more."""
        if not place.is_known:
            return self.strangers_bytes + more <= self.strangers_bytes_max
        return (
            place.client.held_bytes + more <= self.client_bytes_max
            and self.clients_bytes + more <= self.clients_bytes_max
        )

    def add(self, place: Place, more: int) -> None:
        """Count what a connection takes, or gives back."""
        if place.is_known:
            place.client.held_bytes += more
            self.clients_bytes += more
            if more < 0:
                place.client.wake()
        else:
            self.strangers_bytes += more
