"""The reasons for which a port closes or refuses a connection."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Ending"]


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
