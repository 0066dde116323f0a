"""Finds the Raft address of a peer to join, with the user's token and certificates."""

from __future__ import annotations

from lmqcluster.wire.address import Address
from lmqcluster.wire.errors import LmqError

from ...shared.connection.api import Api
from ...shared.connection.credentials import credentials
from ...shared.connection.node_address import HTTP_PORT, node_address
from ...shared.errors import CliError, ExitCode, exit_code_of

__all__ = ["find_peer"]

TIMEOUT_S = 3.0


def find_peer(peer: str) -> str:
    """Return the Raft address of the peer at an HTTP address that requires a token or TLS; else the given address.

    The joining node could ask its peer itself, but it has no token.

    Raises:
        LmqError: the peer refuses the token.
    """
    if "://" in peer:
        peer = node_address(peer)
    found = credentials()
    if found.token is None and found.tls is None:
        return peer
    text = peer.partition("@")[2] if "@" in peer else peer
    try:
        address = Address.parse(text if ":" in text else f"{text}:{HTTP_PORT}")
        status = Api(str(address), timeout_s=TIMEOUT_S).get("/v1/cluster")
    except ValueError:
        return peer
    except LmqError as exc:
        if exit_code_of(exc) == ExitCode.NOT_AUTHORISED:
            raise
        return peer
    except CliError:
        # The peer does not speak HTTP; the node checks whether it is a Raft address.
        return peer
    return next((str(node["raft"]) for node in status["nodes"] if node["id"] == status["self"]), peer)
