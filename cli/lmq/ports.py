"""A look at a port before a node takes it, so that the complaint can say what it was for."""

from __future__ import annotations

import socket
from typing import Final

from lmqcluster.net.blocking import find
from lmqcluster.node.config import ConfigError
from lmqcluster.wire.address import Address

__all__ = ["check_free"]


LOOKUP_S: Final = 30.0
"""How long a node waits for the address of the name that it is to listen on, without which it is of no use."""


def check_free(address: Address, purpose: str, advice: str) -> None:
    """Return if a server could listen on `address`, which may have port 0.

    Args:
        address: where.
        purpose: what is to listen there, for the message.
        advice: what to do other than to stop the program in the way.

    Raises:
        ConfigError: it could not, or no address of its name came in time.
    """
    try:
        found = find(address.host or "0.0.0.0", LOOKUP_S)
    except OSError as exc:
        raise ConfigError(
            f"cannot listen on {address} ({purpose}): {exc}; give an address in digits, or {advice}"
        ) from exc
    for one in found:
        with socket.socket(one.family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(one.at(address.port))
            except (OSError, OverflowError) as exc:
                why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
                text = (
                    f"cannot listen on {address} ({purpose}): {why}; stop the program that is in the way, or {advice}"
                )
                raise ConfigError(text) from exc
