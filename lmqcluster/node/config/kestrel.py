"""Options of the ports for Kestrel clients, whose protocols support neither tokens nor TLS."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from ...wire.address import Address
from . import values
from .option import option

__all__ = ["KESTREL_PORTS", "KestrelOptions", "has_thrift"]

KESTREL_PORTS = ("memcache", "text", "thrift")


def has_thrift() -> bool:
    """Return whether the library for the Thrift port is installed."""
    return find_spec("thrift") is not None


def _port(protocol: str, usual: int) -> dict[str, Any]:
    return option(
        values.address_or_off,
        f"Address of the interface for Kestrel's clients over {protocol}, or off; these clients expect port {usual}.",
        extremes="The protocol has no tokens. Beyond loopback the port uses TLS and needs tls_cert, unless "
        "kestrel_insecure is on.",
        metavar="ADDR",
        default="off",
    )


def _principal(protocol: str) -> dict[str, Any]:
    return option(
        values.text,
        f"Name of the token whose role and queues all clients of {protocol} have; they present no token themselves.",
        extremes="Every client that can connect has this role, so beyond loopback the port needs tls_client_ca, unless"
        " kestrel_insecure is on. Without such a token the port serves no client. Without a name, it serves "
        "clients on the node's own machine while no token is needed.",
        metavar="NAME",
        default="none",
    )


@dataclass(frozen=True, kw_only=True)
class KestrelOptions:
    """Options of the Kestrel ports."""

    memcache: Address | None = field(default=None, metadata=_port("the memcache protocol", 22133))
    memcache_as: str = field(default="", metadata=_principal("memcache"))
    text: Address | None = field(default=None, metadata=_port("the text protocol", 2222))
    text_as: str = field(default="", metadata=_principal("the text protocol"))
    thrift: Address | None = field(default=None, metadata=_port("Thrift (needs the extra thrift of the package)", 2229))
    thrift_as: str = field(default="", metadata=_principal("Thrift"))
    kestrel_insecure: str = field(
        default="off",
        metadata=option(
            values.choice("on", "off"),
            "on to open the memcache, text and thrift ports beyond loopback without TLS or client certificates, "
            "and to serve remote clients there like local ones.",
            extremes="Any client that reaches such a port can read, change and delete messages with the port's "
            "permissions.",
            metavar="SWITCH",
            default="off",
        ),
    )
    kestrel_open_reads_max: int = field(
        default=100,
        metadata=option(
            values.count,
            "Maximum open reads of one memcache, text or thrift connection on one queue (Kestrel's "
            "maxOpenTransactions).",
            extremes="1 to 1000. Clients that read ahead need more than 1.",
            metavar="COUNT",
            default="100",
        ),
    )

    def kestrel_ports(self) -> dict[str, Address]:
        """Return the addresses of the open ports by protocol."""
        found = {name: getattr(self, name) for name in KESTREL_PORTS}
        return {name: address for name, address in found.items() if address is not None}
