"""A server in front of an SQS port for moto's tests: it resets the port by deleting all queues, and it knows the account."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

import boto3

__all__ = ["MotoFront"]

RESET: Final = "/moto-api/reset"
_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}
"""Headers of one connection, which are not passed on."""
_DEADLINE_S: Final = 60
_IDENTITY: Final = (
    "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><GetCallerIdentityResult>"
    "<Account>{}</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
)


class MotoFront:
    """Passes requests on to an SQS port, in its own threads.

    Attributes:
        address: where clients connect.
    """

    def __init__(self, target: str, account: str) -> None:
        handler = type("Handler", (_Handler,), {"target": target, "account": account})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="front of the port")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: str
    account: str

    def do_POST(self) -> None:
        """Answer a POST."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == RESET:
            _delete_queues(self.target)
            self._answer(200, [], b"{}")
            return
        if b"Action=GetCallerIdentity" in body:
            self._answer(200, [("Content-Type", "text/xml")], _IDENTITY.format(self.account).encode())
            return
        connection = http.client.HTTPConnection(self.target, timeout=_DEADLINE_S)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            self._answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    do_GET = do_POST  # noqa: N815 - the name that the base class calls

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing."""


def _delete_queues(target: str) -> None:
    key = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    sqs = boto3.client("sqs", endpoint_url=f"http://{target}", region_name="us-east-1", **key)
    for url in sqs.list_queues().get("QueueUrls", ()):
        sqs.delete_queue(QueueUrl=url)
    sqs.close()
