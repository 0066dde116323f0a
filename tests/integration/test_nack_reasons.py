"""The reason of a nack over every interface: the next delivery, a peek and a dead letter show it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import msgpack
import pytest

from lmqcluster import AsyncClient, Client
from lmqcluster.wire.reasons import REASON_BYTES_MAX

from .attribute_paths import ok, path
from .cluster import Cluster
from .outage import in_step
from .programs import run_here
from .raw_http import call
from .raw_rpc import Rpc, RpcError

Nack = Callable[[Cluster, str, str, str], None]
"""Nacks the message of a queue under an id for a reason."""


def _post(cluster: Cluster, target: str, body: dict[str, Any], *, packed: bool = False) -> Any:
    kind, data = ("x-msgpack", msgpack.packb(body)) if packed else ("json", json.dumps(body).encode())
    return call(cluster[0].http, "POST", target, data, {"content-type": f"application/{kind}"})


def _v1(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    ok(_post(cluster, path(queue, "nack"), {"ids": [receipt], "reason": reason}))


def _v1_packed(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    ok(_post(cluster, path(queue, "nack"), {"ids": [receipt], "reason": reason.encode()}, packed=True))


def _v1_transaction(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    nack = {"op": "nack", "queue": queue, "id": receipt, "place": "keep", "reason": reason}
    ok(_post(cluster, "/v1/transactions", {"operations": [nack]}))


def _rpc(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    with Rpc(cluster[0].rpc) as rpc:
        assert rpc.call("release", queue, receipt, {"reason": reason}) == b"ok"


def _rpc_many(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    with Rpc(cluster[0].rpc) as rpc:
        options = {"reason": reason, "place": "head", "again": True}
        assert rpc.call("release_many", queue, [receipt], options) == [True]
        assert rpc.call("release_many", queue, [receipt], options) == [True]


def _rpc_transaction(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    with Rpc(cluster[0].rpc) as rpc:
        assert rpc.call("transaction", [["release", queue, receipt, {"reason": reason}]]) == [b"ok"]


def _client(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    with Client(cluster[0].rpc) as client:
        assert client.release(queue, receipt, reason=reason)


def _client_many(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    with Client(cluster[0].rpc) as client:
        assert client.release_many(queue, [receipt], reason=reason) == [True]


def _asyncio_transaction(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    async def nack() -> None:
        async with AsyncClient(cluster[0].rpc) as client, client.transaction() as transaction:
            transaction.release(queue, receipt, reason=reason)

    asyncio.run(nack())


def _command(cluster: Cluster, queue: str, receipt: str, reason: str) -> None:
    done = run_here("--node", cluster[0].http, "message", "nack", queue, receipt, "--reason", reason)
    assert done.code == 0, done


WAYS: Final[list[Nack]] = [
    _v1, _v1_packed, _v1_transaction, _rpc, _rpc_many, _rpc_transaction, _client, _client_many, _asyncio_transaction,
    _command,
]  # fmt: skip


@pytest.fixture
def client(shared_cluster: Cluster) -> Any:
    with Client(shared_cluster[0].rpc) as made:
        yield made


def _reason(client: Client, queue: str) -> Any:
    message = client.pull(queue, 20)
    assert message is not None
    assert message.put_back()
    return message.attributes.get("lmq.reason")


@pytest.mark.parametrize("nack", WAYS)
def test_a_message_shows_why_it_came_back(shared_cluster: Cluster, client: Client, queue_name: str, nack: Nack) -> None:
    client.push(queue_name, "body", attributes={"tenant": "a"})
    for reason in ("no stock", "späť \u20ac\nline two"):
        message = client.pull(queue_name, 20)
        assert message is not None
        nack(shared_cluster, queue_name, message.id, reason)
        assert _reason(client, queue_name) == reason
    in_step(shared_cluster)
    peeked = run_here("--node", shared_cluster[1].http, "--json", "message", "peek", queue_name)
    assert json.loads(peeked.out)["messages"][0]["attributes"] == {"lmq.reason": reason, "tenant": "a"}


def test_a_block_that_raises_gives_type_and_text_of_the_exception(
    shared_cluster: Cluster, client: Client, queue_name: str
) -> None:
    client.push(queue_name, "body")
    with pytest.raises(ValueError, match="too much"), client.pull(queue_name, 20):
        raise ValueError("too much")
    assert _reason(client, queue_name) == "ValueError: too much"

    async def fail() -> None:
        async with AsyncClient(shared_cluster[0].rpc) as other:
            message = await other.pull(queue_name, 20)
            assert message is not None
            async with message:
                raise KeyError("gone")

    with pytest.raises(KeyError):
        asyncio.run(fail())
    assert _reason(client, queue_name) == "KeyError: 'gone'"


def test_a_dead_letter_shows_its_last_reason(client: Client, queue_name: str) -> None:
    client.update_props(queue_name, {"retry": 0, "dead_letter_queue": f"{queue_name}.dead"})
    client.push(queue_name, "body")
    message = client.pull(queue_name, 20)
    assert message is not None
    assert message.nack(reason="cannot be parsed")
    assert _reason(client, f"{queue_name}.dead") == "cannot be parsed"


def test_a_reason_is_no_header_of_another_response(shared_cluster: Cluster, client: Client, queue_name: str) -> None:
    client.push(queue_name, "body")
    message = client.pull(queue_name, 20)
    assert message is not None
    message.nack(reason="one\r\nSet-Cookie: a=b\r\n\r\n<html>")
    answer = ok(call(shared_cluster[0].http, "GET", f"/messages/{queue_name}?t=20"))
    assert answer.body.endswith(b"body")
    assert "set-cookie" not in {name.lower() for name in answer.headers}


@pytest.mark.parametrize("text", ["x" * 5_000, "\u20ac" * 5_000])
def test_a_longer_reason_is_cut(shared_cluster: Cluster, client: Client, queue_name: str, text: str) -> None:
    client.update_props(queue_name, {"retry": 9})
    client.push(queue_name, "body")
    for nack in (_v1, _rpc, _client):
        message = client.pull(queue_name, 20)
        assert message is not None
        nack(shared_cluster, queue_name, message.id, text)
        reason = _reason(client, queue_name)
        assert text.startswith(reason)
        assert REASON_BYTES_MAX - 4 < len(reason.encode()) <= REASON_BYTES_MAX


@pytest.mark.parametrize("value", [5, True, ["why"], {"base64": "eA=="}])
def test_a_reason_that_is_no_string_is_refused_and_settles_nothing(
    shared_cluster: Cluster, client: Client, queue_name: str, value: Any
) -> None:
    client.push(queue_name, "body")
    message = client.pull(queue_name, 20)
    assert message is not None
    answer = _post(shared_cluster, path(queue_name, "nack"), {"ids": [message.id], "reason": value})
    assert answer.status == 400
    assert b"reason" in answer.body
    with Rpc(shared_cluster[0].rpc) as rpc, pytest.raises(RpcError, match="function_clause"):
        rpc.call("release", queue_name, message.id, {"reason": value})
    assert message.ack()
