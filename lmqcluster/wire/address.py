"""Network addresses in the form of options and peers: ``HOST:PORT``, with IPv6 hosts in brackets."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import NamedTuple, Self

__all__ = ["Address", "is_loopback"]

PORT_MAX = 65535
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})


class Address(NamedTuple):
    """A host name or IP literal, and a TCP port; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``HOST:PORT`` or ``[IPV6]:PORT``.

        ``localhost`` becomes ``127.0.0.1``, so that a node has only one name.

        Raises:
            ValueError: the text is not an address; the message is one sentence.
        """
        host, colon, digits = text.strip().rpartition(":")
        if not colon:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r}: write an IPv6 host in brackets, as in [::1]:{digits}")
        if any(c.isspace() or c in "/@[]" for c in host):
            raise ValueError(f"{text!r}: {host!r} is not a host name or IP address")
        try:
            host.encode("idna")
        except UnicodeError as exc:
            raise ValueError(f"{text!r}: {host!r} is not a host name: {exc}") from exc
        if not (digits.isascii() and digits.isdigit()) or int(digits) > PORT_MAX:
            raise ValueError(f"{text!r}: {digits!r} is not a port (0 to {PORT_MAX})")
        return cls("127.0.0.1" if host == "localhost" else host, int(digits))

    @property
    def canonical(self) -> Self:
        """Return the spelling for comparisons: a lower-case name without a trailing dot."""
        host = self.host.lower().removesuffix(".")
        with contextlib.suppress(ValueError):
            host = str(ipaddress.ip_address(host))
        return type(self)("127.0.0.1" if host == "localhost" else host, self.port)

    @property
    def is_wildcard(self) -> bool:
        """Return whether this means every interface: a node can listen on it, but a peer cannot dial it."""
        return self.host in _WILDCARDS

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the address; False for host names other than ``localhost``."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(peer: object) -> bool:
    """Return whether a peer address, as asyncio gives it, is on this machine; False if it is not an IP address."""
    if not isinstance(peer, tuple) or not peer:
        return False
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
