"""Settings that the sessions of one client share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .backoff import Backoff
from .credentials import Credentials
from .known_nodes import KnownNodes

__all__ = ["SessionSettings"]


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """Settings of a session. See `AsyncClient` for the limits.

    Attributes:
        nodes: addresses to connect to; sessions add those that the cluster names.
        credentials: tokens and certificates to present to nodes.
        late: called with the result of a pull whose caller was cancelled.
    """

    nodes: KnownNodes
    credentials: Credentials
    timeout_s: float
    connect_timeout_s: float
    heartbeat_s: float
    in_flight_max: int
    backlog_max: int
    backlog_bytes_max: int
    backoff: Backoff
    late: Callable[[Any], None]
