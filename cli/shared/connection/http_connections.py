"""HTTP connections of the programs: they try all addresses of a server, with deadlines for the look-up and for
connecting.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.request
from typing import Any, Final

from lmqcluster.net.blocking import connect

__all__ = ["CONNECT_S", "NotConnectedError", "opener"]

CONNECT_S: Final = 10.0
"""Deadline of the look-up, and of connecting after it."""


class NotConnectedError(OSError):
    """No connection was established in time, so no request was sent."""


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        within_s = CONNECT_S if self.timeout is None else min(CONNECT_S, self.timeout)
        try:
            self.sock = connect(self.host, self.port, timeout_s=within_s, lookup_s=within_s)
        except TimeoutError as exc:
            raise NotConnectedError(str(exc)) from exc
        self.sock.settimeout(self.timeout)


class _TlsConnection(_Connection):
    default_port = http.client.HTTPS_PORT

    def __init__(self, *arguments: Any, tls: ssl.SSLContext | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tls = tls or ssl.create_default_context()

    def connect(self) -> None:
        super().connect()
        try:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
        except TimeoutError as exc:
            raise NotConnectedError(f"{self.host} did not answer in TLS") from exc


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._tls = tls

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, request, tls=self._tls)


def opener(tls: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return an opener that connects directly: a proxy from the environment could answer in place of a node.

    Args:
        tls: for ``https``; by default, the system's authorities are trusted.
    """
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects(), _Http(), _Https(tls))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: nodes send none, and a redirect would pass on the token."""

    def redirect_request(self, *_: Any) -> None:
        return None
