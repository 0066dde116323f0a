"""Kestrel's clients at a node that has lost the others: it makes no uncertain claim."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from thrift.Thrift import TApplicationException

from .cluster import Cluster, NodeProcess
from .kestrel_ports import Lines
from .test_kestrel_thrift import LONG_MS, generated

REQUESTS = (
    b"set q 0 0 1\r\n3\r\n",
    b"set q 0 0 1\r\n3\r\n" * 2 + b"get q\r\n",
    b"set q 0 1 1\r\n3\r\n",
    b"get q\r\n",
    b"get q\r\n" * 3,
    b"get q/open\r\n",
    b"get q/close/open\r\n" * 3,
    b"get q/peek\r\n",
    b"get empty/t=10\r\n",
    b"monitor q 60 1\r\n",
    b"delete q\r\n",
    b"flush q\r\n",
)
OPEN_REQUESTS = (b"get held/close/open\r\n", b"get held/close\r\n", b"get held/abort\r\n", b"confirm held 1\r\n")
"""Requests of a connection that has an open read."""


def calls_of(node: NodeProcess, ids: list[int]) -> list[str]:
    """Return the results of Thrift calls made at the same time; two items are open."""

    def called(call: Callable[[Any], object]) -> str:
        with generated(node) as client:
            try:
                return repr(call(client))
            except TApplicationException as exc:
                return str(exc.type)

    calls: list[Callable[[Any], object]] = [
        lambda client: client.get("q", 1, 0, LONG_MS),
        lambda client: client.get("q", 1, 0, 0),
        lambda client: client.put("q", [b"4"], 0),
        lambda client: client.confirm("timed", {ids[0]}),
        lambda client: client.abort("timed", {ids[1]}),
        lambda client: client.peek("q"),
        lambda client: client.delete_queue("q"),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(called, calls))


def test_neither_an_empty_queue_nor_a_refusal_is_claimed_without_a_leader(kestrel_cluster: Cluster) -> None:
    alone, *others = list(kestrel_cluster)
    with ExitStack() as stack:
        holders = [stack.enter_context(Lines(alone)) for _ in OPEN_REQUESTS]
        clients = [stack.enter_context(Lines(alone)) for _ in REQUESTS]
        text = stack.enter_context(Lines(alone, "text"))
        clients[0].ask(b"set q 0 0 1\r\n1\r\n", b"STORED\r\n")
        text.ask(b"put t:\n1\n\n", b"+1\n")
        for number, holder in enumerate(holders):
            holder.ask(b"set held 0 0 1\r\n%d\r\n" % number, b"STORED\r\n")
            holder.ask(b"get held/open\r\n", b"VALUE held 0 1\r\n%d\r\nEND\r\n" % number)
        with generated(alone) as thrift:
            thrift.put("timed", [b"1", b"2"], 0)
            ids = [one.id for one in thrift.get("timed", 2, 0, LONG_MS)]
        for node in others:
            node.kill()
        asked = [*zip(clients, REQUESTS, strict=True), *zip(holders, OPEN_REQUESTS, strict=True)]
        for client, request in asked:
            client.send(request)
        text.send(b"get t\n")
        assert calls_of(alone, ids) == [str(TApplicationException.INTERNAL_ERROR)] * 7
        for client, request in asked:
            said = client.until(b"\r\n")
            assert said.startswith(b"SERVER_ERROR "), (request, said)
            client.expect_end()
        assert text.until(b"\n").startswith(b"-")
        for node in others:
            node.start()
    with Lines(others[0]) as client:
        # Whether the first two are closed is unknown; the others are there.
        client.send(b"get held/t=100000\r\n")
        assert client.until(b"\r\nEND\r\n").startswith(b"VALUE held 0 1\r\n")
