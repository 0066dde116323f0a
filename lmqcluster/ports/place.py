"""One accepted connection as its port counts it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clients import Client
    from .gate import Gate

__all__ = ["Ending", "Place"]


class Ending(StrEnum):
    """Why a port ended a connection or did not take it."""

    CLIENT_FULL = "client_full"
    PORT_FULL = "port_full"
    STRANGERS_FULL = "strangers_full"
    MEMORY = "memory"
    NOT_AUTHENTICATED = "not_authenticated"
    HANDSHAKE = "handshake"
    BAD_REQUEST = "bad_request"
    TOO_SLOW = "too_slow"
    IDLE = "idle"


class Place:
    """A connection from its acceptance to its end, TLS handshake included.

    Attributes:
        client: whose it is.
        address: where it comes from, as sockets give it.
        since_s: when it was accepted, in the event loop's time.
        is_known: whether the client has said who it is.
        is_over: whether its port counts it no more.
        is_spare: whether it is beyond the bounds of its port, and so has to end after one answer.
        held_bytes: what it counts in the memory budget.
        user: name of the token that the client has shown; empty while it has shown none.
        shown: digest of the last secret chosen by people that the client has rightly shown here.
    """

    __slots__ = (
        "__weakref__", "_end", "_gate", "address", "client", "held_bytes", "is_known", "is_over", "is_spare", "shown",
        "since_s", "user",
    )  # fmt: skip

    def __init__(self, gate: Gate, client: Client, address: object, since_s: float) -> None:
        self.client = client
        self.address = address
        self.since_s = since_s
        self.is_known = self.is_spare = False
        self.held_bytes = 0
        self.user = ""
        self.shown = b""
        self._gate = gate
        self.is_over = False
        self._end: Callable[[], object] | None = None

    @property
    def port(self) -> str:
        """Name of the port that it came to."""
        return self._gate.port

    def ends_by(self, end: Callable[[], object]) -> None:
        """Take how the connection is ended at once, should its port need the place."""
        self._end = end

    def admit(self, *, spare: bool = False) -> bool:
        """The client has said who it is, with a request that it may send: from now on it is no stranger. Again costs little.

        Args:
            spare: whether the request may take a connection that the port has in reserve.

        Returns:
            False if the port has no place for it, and the request must be refused.
        """
        return self.is_known or self.is_over or self._gate.admit(self, spare=spare)

    def hold(self, size_bytes: int, *, must: bool = False) -> bool:
        """Hold so many bytes altogether for this connection from now on; with `must` they are held already.

        Returns:
            False if the budgets do not allow it; then nothing has changed, and the caller must not keep what it wanted to hold.
        """
        more = size_bytes - self.held_bytes
        if more > 0 and not must and not self.is_over and not self._gate.make_room(self, more):
            return False
        if more and not self.is_over:
            self._gate.memory.add(self, more)
            self.held_bytes = size_bytes
        return True

    def note(self, ending: Ending, reason: str = "") -> None:
        """Count that the node ends this connection, and say so in the log unless it was said of this client a moment ago."""
        self._gate.note(self.client, ending, reason)

    def ended(self) -> None:
        """The connection is no more. May be called again."""
        self._end = None
        if not self.is_over:
            self._gate.leave(self)

    def end(self) -> None:
        """End the connection at once; nothing more is counted for it."""
        end = self._end
        self.ended()
        if end is not None:
            end()
