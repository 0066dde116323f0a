"""The nodes that a client may connect to: those from its configuration, and those that the cluster names.

A client starts with the addresses it is given. A node that it reaches names the addresses of all members (the method
``cluster``), so the client keeps working even if all the nodes it started with are gone. The client asks on each new
connection, and periodically on an open one.

Each answer replaces the one before it. At most `NAMED_MAX` addresses of it are used, so that no node can make the list grow.
The client accepts a loopback or unspecified address only from a node that it also reaches at such an address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

from .addresses import NodeAddress, parse_addresses
from .in_memory import IN_MEMORY

__all__ = ["NAMED_MAX", "KnownNodes"]

NAMED_MAX: Final = 32
"""Maximum number of addresses accepted from an answer."""
_TEXT_BYTES_MAX: Final = 300
"""Length of the longest accepted address in bytes: a host name has at most 255."""


class KnownNodes:
    """A list of nodes. Clients of one cluster may share it, also between threads.

    Attributes:
        given: the addresses to start with, in order of preference.
        discovers: whether clients ask the cluster for more.
    """

    def __init__(self, nodes: str | Iterable[str], *, discovers: bool = True) -> None:
        """Store the addresses to start with, see `parse_addresses`.

        Raises:
            ValueError: there is no address, or one is malformed.
        """
        self.given = tuple(parse_addresses(nodes))
        self.discovers = discovers
        self._all = self.given

    def __len__(self) -> int:
        return len(self._all)

    @property
    def all(self) -> tuple[NodeAddress, ...]:
        """All addresses: the given ones first, then those that the cluster named last."""
        return self._all

    @property
    def named(self) -> tuple[NodeAddress, ...]:
        """The addresses that only the cluster has named."""
        return self._all[len(self.given) :]

    def after(self, address: NodeAddress | None) -> NodeAddress:
        """Return the address to try after one that failed; the first one if that is no longer in the list."""
        nodes = self._all
        if address not in nodes:
            return nodes[0]
        return nodes[(nodes.index(address) + 1) % len(nodes)]

    def learn(self, named: Any, source: NodeAddress) -> None:
        """Replace the named addresses by those from a node's answer.

        Args:
            named: the node's answer, which may be any value. Elements that are no usable address are dropped. An answer
                without any usable address changes nothing.
            source: the address of the node that answered.
        """
        if not self.discovers or not isinstance(named, list):
            return
        found = [address for text in named[:NAMED_MAX] if (address := _usable(text, source)) is not None]
        if found:
            self.take(found)

    def take(self, named: Iterable[NodeAddress]) -> None:
        """Replace the named addresses by those that another client of the cluster has learned."""
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
