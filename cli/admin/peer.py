"""Whom a node is to join: found out here, where the token and the certificates of the user are."""

from __future__ import annotations

from lmqcluster.wire.address import Address
from lmqcluster.wire.errors import LmqError

from ..shared.api import Api
from ..shared.credentials import credentials
from ..shared.errors import CliError, ExitCode, exit_code_of
from ..shared.node_address import node_address

__all__ = ["peer_to_join"]

HTTP_PORT = 9980
TIMEOUT_S = 3.0


def peer_to_join(peer: str) -> str:
    """The Raft address of the peer at an HTTP address, where it asks for a token or TLS; else what was written.

    The node that joins could ask its peer for that itself, but it has no token to show.

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
        # It does not speak HTTP: the node will see whether it is a Raft address.
        return peer
    return next((str(node["raft"]) for node in status["nodes"] if node["id"] == status["self"]), peer)
