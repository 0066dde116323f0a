"""Reasons not to retry an address."""

from __future__ import annotations

import asyncio
import ssl

from lmqcluster.wire.errors import LmqError

from .addresses import NodeAddress
from .in_memory import IN_MEMORY
from .probe import Answers, Speaks, what_answers

__all__ = ["denial"]


async def denial(address: NodeAddress, error: Exception, *, has_tls: bool) -> LmqError | None:
    """Return why a retry at an address cannot succeed after an error, None if it may.

    Args:
        address: the node.
        error: the error of the connection attempt.
        has_tls: whether the client uses TLS.
    """
    if isinstance(error, LmqError) and error.code in {"unauthorized", "forbidden"}:
        return LmqError(error.code, f"{address}: {error}", retryable=False)
    if isinstance(error, ssl.SSLCertVerificationError):
        return LmqError("unreachable", f"{address}: {error}", retryable=False)
    if isinstance(error, (ConnectionRefusedError, TimeoutError)) or address.host == IN_MEMORY:
        return None
    # The peer accepted the connection but did not answer like a node.
    wanted = Answers(Speaks.RPC, tls=has_tls)
    found = await asyncio.to_thread(what_answers, address.host, address.port)
    if found is None or not found.is_other_than(wanted):
        return None
    text = f"{address}: {found} answers there, not {wanted}; {_advice(found, wanted)}"
    return LmqError("unreachable", text, retryable=False)


def _advice(found: Answers, wanted: Answers) -> str:
    if found.speaks is not None and found.speaks is not wanted.speaks:
        return "give the address of MessagePack-RPC (port 18800, unless it was changed)"
    return "give tls_ca" if found.tls else "leave tls_ca out"
