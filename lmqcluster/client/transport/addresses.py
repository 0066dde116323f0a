"""Addresses of nodes, as users write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = ["DEFAULT_PORT", "NodeAddress", "parse_addresses"]

DEFAULT_PORT = 18800
"""Port of LMQ's MessagePack-RPC."""


class NodeAddress(NamedTuple):
    """Address at which one node listens for MessagePack-RPC."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(nodes: str | Iterable[str]) -> list[NodeAddress]:
    """Parse ``"host:18800,host:18810"`` or several such strings; the port defaults to 18800.

    Duplicates are dropped, the order is kept.

    Raises:
        ValueError: there is no address, or one of them is not ``HOST[:PORT]``.
    """
    texts = nodes.split(",") if isinstance(nodes, str) else [part for node in nodes for part in node.split(",")]
    addresses = [_parse(text.strip()) for text in texts if text.strip()]
    if not addresses:
        raise ValueError("a client needs the address of at least one node, such as 127.0.0.1:18800")
    return list(dict.fromkeys(addresses))


def _parse(text: str) -> NodeAddress:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ValueError(f"{text!r} is not HOST:PORT: {exc}") from exc
    if not host or parts.netloc != text or "@" in text or any(c.isspace() for c in text):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return NodeAddress(host, DEFAULT_PORT if port is None else port)
