"""Keyword arguments of the clients, for code that passes them through."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, TypedDict

from .transport.backoff import Backoff
from .transport.credentials import FileName

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["ClientOptions"]


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of `Client`, the same as those of `AsyncClient`, which documents them."""

    timeout_s: float
    connect_timeout_s: float
    heartbeat_s: float
    decode: bool
    in_flight_max: int
    backlog_max: int
    backlog_bytes_max: int
    backoff: Backoff
    token: str | None
    token_file: FileName | None
    tls_ca: FileName | None
    tls_cert: FileName | None
    tls: ssl.SSLContext | None
    discover: bool
    tracing: bool | TracerProvider
