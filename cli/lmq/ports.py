"""Checks a port before a node binds it, so that the error can name its purpose."""

from __future__ import annotations

import errno
import socket
from typing import Final

from lmqcluster.net.blocking import find
from lmqcluster.wire.address import Address

from ..shared.errors import CliError, ExitCode

__all__ = ["check_free"]


LOOKUP_S: Final = 30.0
"""How long to wait for the address of the host to listen on."""
_REMEDIES: Final[dict[int | None, tuple[str, ExitCode]]] = {
    errno.EADDRINUSE: ("stop the program that uses the port, or ", ExitCode.UNAVAILABLE),
    errno.EADDRNOTAVAIL: ("this machine does not have the address now: wait for it, or ", ExitCode.UNAVAILABLE),
    errno.EACCES: (
        "the user may not listen on ports below 1024: allow it (CAP_NET_BIND_SERVICE), or ",
        ExitCode.CONFIGURATION,
    ),
}
"""The remedy for an error of ``bind``, and the exit status, by its number."""


def check_free(address: Address, purpose: str, advice: str) -> None:
    """Check that a server could listen on `address`, which may have port 0.

    Args:
        address: the address to check.
        purpose: the service that is to listen there, for the message.
        advice: how to choose another address.

    Raises:
        CliError: the address cannot be bound, or the look-up of its name failed. The status is that of a wrong configuration
            only if a later attempt would fail too; a machine that is starting may get the address later.
    """
    try:
        found = find(address.host or "0.0.0.0", LOOKUP_S)
    except OSError as exc:
        text = f"cannot listen on {address} ({purpose}): {exc}; use a numeric address, or {advice}"
        raise CliError(text, ExitCode.UNAVAILABLE) from exc
    for one in found:
        with socket.socket(one.family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(one.at(address.port))
            except (OSError, OverflowError) as exc:
                raise _refused(address, purpose, advice, exc) from exc


def _refused(address: Address, purpose: str, advice: str, error: OSError | OverflowError) -> CliError:
    """Return the error for an address that cannot be bound, with the remedy for its cause."""
    number = error.errno if isinstance(error, OSError) else None
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    remedy, code = _REMEDIES.get(number, ("", ExitCode.CONFIGURATION))
    return CliError(f"cannot listen on {address} ({purpose}): {why}; {remedy}{advice}", code)
