"""One accepted connection, as its port counts it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client
    from .connection_limiter import ConnectionLimiter

__all__ = ["ConnectionSlot", "Ending"]


class Ending(StrEnum):
    """Reasons for which a port closes or refuses a connection."""

    CLIENT_FULL = "client_full"
    PORT_FULL = "port_full"
    UNAUTHENTICATED_FULL = "unauthenticated_full"
    MEMORY = "memory"
    NOT_AUTHENTICATED = "not_authenticated"
    HANDSHAKE = "handshake"
    BAD_REQUEST = "bad_request"
    TOO_SLOW = "too_slow"
    IDLE = "idle"


class ConnectionSlot:
    """A connection from acceptance to its end, including the TLS handshake.

    Attributes:
        client: the client that opened it.
        address: the peer's socket address.
        since_s: when it was accepted, in the event loop's time.
        is_known: whether it is authenticated.
        is_released: whether it is no longer counted.
        is_spare: whether it exceeds the limits of its port and must be closed after one answer.
        held_bytes: its share of the memory budget.
        user: name of the token that it authenticated with; empty before.
        verified_digest: digest of the last password that was verified on this connection.
    """

    __slots__ = (
        "__weakref__",
        "_end",
        "_gate",
        "address",
        "client",
        "held_bytes",
        "is_known",
        "is_released",
        "is_spare",
        "since_s",
        "user",
        "verified_digest",
    )  # fmt: skip

    def __init__(self, gate: ConnectionLimiter, client: Client, address: object, since_s: float) -> None:
        self.client = client
        self.address = address
        self.since_s = since_s
        self.is_known = self.is_spare = False
        self.held_bytes = 0
        self.user = ""
        self.verified_digest = b""
        self._gate = gate
        self.is_released = False
        self._end: Callable[[], object] | None = None

    @property
    def port(self) -> str:
        """Return the name of the port."""
        return self._gate.port

    def set_abort(self, end: Callable[[], object]) -> None:
        """Set the function that aborts the connection; the port calls it to make room."""
        self._end = end

    def admit(self, *, spare: bool = False) -> bool:
        """Mark the connection as authenticated, after a permitted request. Idempotent and cheap.

        Args:
            spare: whether the request may use a connection that the port keeps in reserve.

        Returns:
            False if the port is full; the caller must refuse the request.
        """
        return self.is_known or self.is_released or self._gate.admit(self, spare=spare)

    def hold(self, size_bytes: int, *, must: bool = False) -> bool:
        """Set the number of bytes that this connection holds; with `must`, even beyond the budget.

        Returns:
            False if the budget does not allow it; then nothing has changed and the caller must not keep the data.
        """
        more = size_bytes - self.held_bytes
        if more > 0 and not must and not self.is_released and not self._gate.make_room(self, more):
            return False
        if more and not self.is_released:
            self._gate.memory.add(self, more)
            self.held_bytes = size_bytes
        return True

    def note(self, ending: Ending, reason: str = "") -> None:
        """Count why the node closes this connection; log it at most once a minute for each client."""
        self._gate.note(self.client, ending, reason)

    def release(self) -> None:
        """Unregister the connection after it was closed. Idempotent."""
        self._end = None
        if not self.is_released:
            self._gate.leave(self)

    def abort(self) -> None:
        """Abort the connection and unregister it."""
        end = self._end
        self.release()
        if end is not None:
            end()
