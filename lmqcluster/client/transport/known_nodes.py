"""The nodes that a client may turn to: those it was given, and those that the cluster names.

The addresses that a client is given are where it starts. A node that it reaches names the addresses of all members (the method
``cluster``), so that the client goes on when every node it was given has gone. The client asks again with each connection, and
from time to time on one that stands.

An answer replaces the one before it and counts up to `NAMED_MAX` addresses, so that no node can make the list grow. A named
address that leads every machine to itself is taken only from a node that the client reaches in the same way.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

from .addresses import NodeAddress, parse_addresses
from .in_memory import IN_MEMORY

__all__ = ["NAMED_MAX", "KnownNodes"]

NAMED_MAX: Final = 32
"""Most addresses that are taken from an answer."""
_TEXT_BYTES_MAX: Final = 300
"""Longest address that is taken: a host name has at most 255 bytes."""


class KnownNodes:
    """A list of nodes; clients of one cluster may share it, also from several threads.

    Attributes:
        given: the addresses to start with, in order of preference.
        discovers: whether clients ask the cluster for further ones.
    """

    def __init__(self, nodes: str | Iterable[str], *, discovers: bool = True) -> None:
        """Take the addresses to start with, see `parse_addresses`.

        Raises:
            ValueError: there is none, or one is malformed.
        """
        self.given = tuple(parse_addresses(nodes))
        self.discovers = discovers
        self._all = self.given

    def __len__(self) -> int:
        return len(self._all)

    @property
    def all(self) -> tuple[NodeAddress, ...]:
        """Every address: the given ones first, then what the cluster named last."""
        return self._all

    @property
    def named(self) -> tuple[NodeAddress, ...]:
        """The addresses that only the cluster has named."""
        return self._all[len(self.given) :]

    def after(self, address: NodeAddress | None) -> NodeAddress:
        """Return the address to try after one that failed; the first one if that is not in the list any more."""
        nodes = self._all
        if address not in nodes:
            return nodes[0]
        return nodes[(nodes.index(address) + 1) % len(nodes)]

    def learn(self, named: Any, source: NodeAddress) -> None:
        """Take the addresses that a node has named, in place of those that were named before.

        Args:
            named: the node's answer, which may be anything; what is no usable address in it is left out. An answer without
                any changes nothing.
            source: where the node was reached.
        """
        if not self.discovers or not isinstance(named, list):
            return
        found = [address for text in named[:NAMED_MAX] if (address := _usable(text, source)) is not None]
        if found:
            self.take(found)

    def take(self, named: Iterable[NodeAddress]) -> None:
        """Take addresses that another client of the cluster has learned."""
        self._all = tuple(dict.fromkeys((*self.given, *named)))


def _usable(text: Any, source: NodeAddress) -> NodeAddress | None:
    if not isinstance(text, bytes) or len(text) > _TEXT_BYTES_MAX or b"," in text:
        return None
    try:
        (address,) = parse_addresses(text.decode("ascii"))
    except ValueError:
        return None
    if address.host == IN_MEMORY or (_is_of_this_machine(address.host) and not _is_of_this_machine(source.host)):
        return None
    return address


def _is_of_this_machine(host: str) -> bool:
    try:
        digits = ipaddress.ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
    return digits.is_loopback or digits.is_unspecified
