"""How the programs reach a server over HTTP: any of its addresses, with deadlines for its name and for connecting."""

from __future__ import annotations

import http.client
import ssl
import urllib.request
from typing import Any, Final

from lmqcluster.net.blocking import connect

__all__ = ["CONNECT_S", "NotConnectedError", "opener"]

CONNECT_S: Final = 10.0
"""How long the look-up of the name may take, and connecting after it."""


class NotConnectedError(OSError):
    """No connection came about in time, so nothing was asked."""


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
    """What opens URLs, directly: a proxy of the environment would answer in a node's place.

    Args:
        tls: for ``https``; default: the authorities that the system trusts.
    """
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects(), _Http(), _Https(tls))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: nothing that is asked here sends one, and the token or key would go with it."""

    def redirect_request(self, *_: Any) -> None:
        return None
