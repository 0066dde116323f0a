"""``lmq-admin import queued`` from a hostile server."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from lmqcluster_cli.admin.imports import import_queued
from lmqcluster_cli.admin.imports.import_queued import Source
from lmqcluster_cli.shared.errors import CliError, ExitCode

LIMIT_BYTES = 1024 * 1024


class Hostile(http.server.ThreadingHTTPServer):
    """A server that gives the same answer to every request.

    Attributes:
        answer: the answer.
        block: data that it sends without an end, if not empty.
        location: the target of its redirect, if not empty.
        sent: number of bytes it has sent without an end.
        seen: the requested paths, with the key that was sent.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = self.block = b""
        self.location = ""
        self.sent = 0
        self.seen: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hostile

    def do_GET(self) -> None:
        server = self.server
        server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(302 if server.location else 200)
        if server.location:
            self.send_header("Location", server.location)
        self.end_headers()
        try:
            self.wfile.write(server.answer)
            while server.block:
                self.wfile.write(server.block)
                server.sent += len(server.block)
        except OSError:
            # The client has closed the connection.
            return

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Discard the log message."""


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_answer_without_end_is_not_read_to_its_end(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_queued, "ANSWER_BYTES_MAX", LIMIT_BYTES)
    hostile.answer, hostile.block = b"\xc6\xff\xff\xff\xff", bytes(64 * 1024)
    with pytest.raises(CliError, match=f"more than {LIMIT_BYTES} bytes"):
        Source(hostile.url, None).queues()
    # Socket buffers hold some more.
    assert hostile.sent < 16 * LIMIT_BYTES


def test_values_are_counted_before_they_are_built(hostile: Hostile) -> None:
    hostile.answer = b"\xdd\x00\x50\x00\x00" + b"\x90" * 0x500000
    with pytest.raises(CliError, match="values"):
        Source(hostile.url, None).queues()


@pytest.mark.parametrize(
    "answer",
    [None, 5, [], {}, {"queues": 5}, {"queues": [5]}, {"queues": [{}]}, {"queues": [{"name": b"x"}]}, {"queues": None}],
)
def test_an_answer_unlike_queued_is_reported(hostile: Hostile, answer: Any) -> None:
    hostile.answer = msgpack.packb(answer)
    with pytest.raises(CliError, match="is not one of queued") as caught:
        Source(hostile.url, None).queues()
    assert caught.value.exit_code == ExitCode.BAD_DATA
    for operation in (Source(hostile.url, None).poll, Source(hostile.url, None).left):
        with pytest.raises(CliError, match="is not one of queued"):
            operation("q")


@pytest.mark.parametrize("answer", [b"", b"\x81", b"\x80\x80", b"\xc1"])
def test_invalid_messagepack_is_reported(hostile: Hostile, answer: bytes) -> None:
    hostile.answer = answer
    with pytest.raises(CliError, match="cannot be reached"):
        Source(hostile.url, None).queues()


def test_a_key_is_sent_to_no_other_server(hostile: Hostile) -> None:
    with Hostile() as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        hostile.location = f"{other.url}/queues"
        with pytest.raises(CliError, match="302"):
            Source(hostile.url, "a secret key").queues()
        other.shutdown()
        thread.join()
    assert hostile.seen == [("/queues", "a secret key")]
    assert other.seen == []
