"""Checks a port before a node binds it, so that the error can name its purpose."""

from __future__ import annotations

import socket
from typing import Final

from lmqcluster.net.blocking import find
from lmqcluster.node.config.config import ConfigError
from lmqcluster.wire.address import Address

__all__ = ["check_free"]


LOOKUP_S: Final = 30.0
"""How long to wait for the address of the host to listen on."""


def check_free(address: Address, purpose: str, advice: str) -> None:
    """Check that a server could listen on `address`, which may have port 0.

    Args:
        address: the address to check.
        purpose: the service that is to listen there, for the message.
        advice: the alternative to stopping the program that uses the port.

    Raises:
        ConfigError: the address cannot be bound, or the look-up of its name failed.
    """
    try:
        found = find(address.host or "0.0.0.0", LOOKUP_S)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {address} ({purpose}): {exc}; use a numeric address, or {advice}") from exc
    for one in found:
        with socket.socket(one.family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(one.at(address.port))
            except (OSError, OverflowError) as exc:
                why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
                text = (
                    f"cannot listen on {address} ({purpose}): {why}; stop the program that uses the port, or {advice}"
                )
                raise ConfigError(text) from exc
