"""The settings that the sessions of one client share."""

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
    """See `AsyncClient` for the limits.

    Attributes:
        nodes: where to connect to; sessions add what the cluster names.
        credentials: what to show to nodes.
        late: takes the result of a pull whose caller has gone.
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
