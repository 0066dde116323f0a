"""A look at a port before a node takes it, so that the complaint can say what it was for."""

from __future__ import annotations

import socket

from lmqcluster.node.config import ConfigError
from lmqcluster.wire.address import Address

__all__ = ["check_free"]


def check_free(address: Address, purpose: str, advice: str) -> None:
    """Return if a server could listen on `address`, which may have port 0.

    Args:
        address: where.
        purpose: what is to listen there, for the message.
        advice: what to do other than to stop the program in the way.

    Raises:
        ConfigError: it could not.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except (OSError, OverflowError) as exc:
            why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            text = f"cannot listen on {address} ({purpose}): {why}; stop the program that is in the way, or {advice}"
            raise ConfigError(text) from exc
