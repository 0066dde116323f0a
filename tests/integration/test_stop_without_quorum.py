"""A node that stops without a quorum: each client with a push in flight gets an answer, on every port."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from thrift.Thrift import TApplicationException

from .cluster import Cluster, NodeProcess, fetch, wait_for
from .kestrel_ports import Lines
from .raw_http import call
from .raw_rpc import Rpc
from .test_kestrel_thrift import generated

JSON = {"content-type": "application/json"}


def over_http(node: NodeProcess) -> str:
    return str(call(node.http, "POST", "/messages/http", b"1", {"content-type": "text/plain"}).status)


def over_v1(node: NodeProcess) -> str:
    answer = call(node.http, "POST", "/v1/queues/v1/messages", b'{"messages": [{"content": "1"}]}', JSON)
    return str(answer.json["code"])


def over_queued(node: NodeProcess) -> str:
    body = json.dumps({"messages": [{"contents": "1", "visibility_timeout_secs": 0}]}).encode()
    return str(call(node.queued, "POST", "/queue/queued/messages/push", body, JSON).status)


def over_rpc(node: NodeProcess) -> str:
    with Rpc(node.rpc) as client:
        return str(client.error("push", "rpc", b"1"))


def over_memcache(node: NodeProcess) -> str:
    with Lines(node, "memcache") as lines:
        lines.send(b"set memcache 0 0 1\r\n1\r\n")
        return lines.until(b"\n").decode()


def over_text(node: NodeProcess) -> str:
    with Lines(node, "text") as lines:
        lines.send(b"put text:\n1\n\n")
        return lines.until(b"\n").decode()


def over_thrift(node: NodeProcess) -> str:
    with generated(node) as client:
        try:
            return repr(client.put("thrift", [b"1"], 0))
        except TApplicationException as exc:
            return f"exception {exc.type}"


PUSHES: tuple[Callable[[NodeProcess], str], ...] = (
    over_http, over_v1, over_queued, over_rpc, over_memcache, over_text, over_thrift,
)  # fmt: skip

ANSWER = re.compile(r"50[34]$|exception 6$|(?:b'|SERVER_ERROR |-)?(?:unknown_outcome|shutting_down|no_leader)\b")


def pending(node: NodeProcess) -> int:
    """Return the commands and batches of the node without an outcome."""
    page = fetch(node.http, "/metrics")[1].decode()
    found = re.search(r"^lmq_raft_proposals_pending (\d+)$", page, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_pushes_in_flight_are_answered_on_every_port(kestrel_cluster: Cluster) -> None:
    """They used to be closed without an answer, after 4 s without a commit."""
    alone, *others = list(kestrel_cluster)
    assert call(alone.queued, "PUT", "/queue/queued", b"{}", JSON).status == 200
    for node in others:
        node.kill()
    with ThreadPoolExecutor(len(PUSHES)) as pool:
        answers: list[Future[str]] = [pool.submit(push, alone) for push in PUSHES]
        wait_for(lambda: pending(alone) >= 2, "pushes in flight")
        assert alone.stop(timeout_s=10) == 0
        said = [answer.result() for answer in answers]
    assert [one for one in said if not ANSWER.match(one)] == []
