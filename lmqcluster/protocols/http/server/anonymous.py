"""Checks of requests without a token.

While no token is required, every program on the node's machine is an administrator, but web pages are not. A browser on
the machine sends requests for any page that it shows, so the node checks the headers that the browser adds:

``Host``: a page can be loaded under a domain name of its owner that later resolves to this machine (DNS rebinding). Its
requests are then of the same origin. So the host must be a loopback address, ``localhost``, or a name that the node's
owner has configured, whatever it resolves to. The port is not checked, because a tunnel may change it.

``Origin``: browsers send it with every request that may change something. It must equal the host of the request.

``Sec-Fetch-Site``: browsers send it with every request, but only to addresses that they trust, such as loopback
addresses and those with TLS. If it is present, it must show that no other page caused the request. A browser's GET to
any other address has neither header; there the console sends a header that pages of other origins cannot send.

Requests without all of these come from programs.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from ....wire.errors import LmqError
from .requests.target import authority_of

if TYPE_CHECKING:
    from ....node.config.config import NodeConfig
    from .requests.request import Request

__all__ = ["CONSOLE_HEADER", "AnonymousRequests"]

CONSOLE_HEADER: Final = "X-Lmq-Console"
"""Header that the console sends. A page of another origin needs permission to send it, which is never granted."""

_FETCH_SITE: Final = "Sec-Fetch-Site"
_OWN_SITES: Final = frozenset(("none", "same-origin"))
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{0,5})?")
_LOOPBACK_6: Final = ipaddress.IPv6Address("::1")
_KNOWN_MAX: Final = 1000
_SHOWN_CHARACTERS_MAX: Final = 100


class AnonymousRequests:
    """Check of requests without a token. The caller has already verified that the client is on this machine."""

    __slots__ = ("_hosts", "_known")

    def __init__(self, config: NodeConfig) -> None:
        """Take the names of the node from its configuration."""
        own = (
            address
            for address in (config.http, config.queued, config.sqs, config.advertise_raft)
            if address is not None
        )
        names = (address.host for address in own if not address.is_wildcard)
        self._hosts = frozenset((*(_bracketed(name).lower() for name in names), *config.http_hosts))
        self._known: dict[str, bool] = {}

    def check(self, request: Request) -> None:
        """Refuse a request that a page of another origin may have caused.

        Raises:
            LmqError: ``unknown_host`` or ``foreign_origin``.
        """
        headers = request.headers
        hosts = headers.getall(hdrs.HOST, ())
        target = request.raw_path
        if not target.startswith("/") and (authority := authority_of(target)) is not None:
            hosts = (*hosts, authority)
        # HTTP/1.0 does not require a host, but browsers always send one.
        trusted = True
        for host in hosts:
            trusted = self._is_loopback(host) and trusted
        origin = headers.get(hdrs.ORIGIN)
        if origin is not None and not (hosts and _is_of(origin, hosts[-1])):
            raise _foreign(f"a page of {origin[:_SHOWN_CHARACTERS_MAX]!r}")
        site = headers.get(_FETCH_SITE)
        if site is not None and site not in _OWN_SITES:
            raise _foreign("a page from elsewhere")
        if not trusted and origin is None and site is None and _is_browser(request) and CONSOLE_HEADER not in headers:
            raise _foreign("a page that the browser does not name")

    def _is_loopback(self, host: str) -> bool:
        """Return whether browsers trust a host because it is always this machine.

        Raises:
            LmqError: ``unknown_host`` if it is not a name of the node either.
        """
        known = self._known.get(host)
        if known is None:
            match = _HOST.fullmatch(host)
            name = "" if match is None else match[1].lower()
            known = name == "localhost" or _is_loopback_literal(name)
            if not known and name not in self._hosts:
                raise LmqError(
                    "unknown_host",
                    f"without a token this node does not answer for the host {host[:_SHOWN_CHARACTERS_MAX]!r}: ask for "
                    "localhost, 127.0.0.1 or [::1], name the host in the option http_hosts, or make tokens",
                )
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[host] = known
        return known


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback_literal(name: str) -> bool:
    """Return whether a host is in 127.0.0.0/8 or is ::1, in the usual notation. Other notations are refused."""
    try:
        if name.startswith("["):
            return ipaddress.IPv6Address(name[1:-1]) == _LOOPBACK_6
        return ipaddress.IPv4Address(name).is_loopback
    except ValueError:
        return False


def _is_of(origin: str, host: str) -> bool:
    """Return whether an origin is this host and port. The scheme is not compared, because a proxy may terminate TLS."""
    scheme, _separator, place = origin.lower().partition("://")
    return scheme in ("http", "https") and place == host.lower()


def _is_browser(request: Request) -> bool:
    return request.headers.get(hdrs.USER_AGENT, "").startswith("Mozilla/")


def _foreign(whose: str) -> LmqError:
    text = f"without a token this node serves programs on its machine and its own console, not {whose} in a browser"
    return LmqError("foreign_origin", text)
