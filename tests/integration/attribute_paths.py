"""Ways of a message through a cluster, each of which keeps its attributes: pushes, journeys, and reads.

A push stores one message and returns its attributes. A journey brings a message from one queue to another, or back to the
same one, and returns the queue in which it is. A read returns the attributes of the only message of a queue.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import msgpack

from lmqcluster import AsyncClient, Client
from lmqcluster.wire.attributes import Attributes, pack_attributes, unpack_attributes, value_text

from .cluster import Cluster, wait_for
from .programs import run
from .raw_http import Answer, call
from .raw_rpc import Rpc

__all__ = ["ATTRIBUTES", "JOURNEYS", "PUSHES", "READS", "ok", "path"]

ATTRIBUTES: Final[Attributes] = {
    "empty": "",
    "n": -(1 << 63),
    "ratio": 0.5,
    "raw": b"\xff\x00",
    "tenant": "n\xf6rth",
    **{f"tag-{number}": number for number in range(20)},
}
"""Attributes of all types, more than a map with a short header holds."""
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_PACKED: Final = pack_attributes(ATTRIBUTES)
_JSON: Final = {"content-type": "application/json"}
_MSGPACK: Final = {"content-type": "application/x-msgpack"}

Push = Callable[[Cluster, str], Attributes]
Journey = Callable[[Cluster, str], str]
Read = Callable[[Cluster, str], Attributes]


def path(queue: str, *rest: str) -> str:
    """Return a path below ``/v1/queues``."""
    return "/".join(["/v1/queues", urllib.parse.quote(queue, safe=""), *rest])


def ok(answer: Answer) -> Answer:
    """Check that a request succeeded."""
    assert 200 <= answer.status < 300, answer
    return answer


def _as_json(attributes: Attributes) -> dict[str, Any]:
    return {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in attributes.items()
    }


def _from_json(attributes: dict[str, Any]) -> Attributes:
    return {
        name: base64.b64decode(value["base64"]) if isinstance(value, dict) else value
        for name, value in attributes.items()
    }


def waiting(cluster: Cluster, queue: str, state: str = "ready") -> None:
    """Wait until the queue has one message in this state."""
    target = path(queue, "messages")

    def found() -> bool:
        answer = call(cluster[1].http, "GET", target)
        return answer.status == 200 and [one["state"] for one in answer.json["messages"]] == [state]

    wait_for(found, f"a {state} message in {queue}")


# --- pushes ------------------------------------------------------------------------------------------------------------


def _push_client(cluster: Cluster, queue: str) -> Attributes:
    with Client(cluster[0].rpc) as client:
        client.push(queue, "x", attributes=ATTRIBUTES)
    return ATTRIBUTES


def _push_async(cluster: Cluster, queue: str) -> Attributes:
    async def push() -> None:
        async with AsyncClient(cluster[0].rpc) as client:
            await client.push_many(queue, ["x"], options=[{"attributes": ATTRIBUTES, "priority": 3, "label": "l"}])

    asyncio.run(push())
    return ATTRIBUTES


def _push_json(cluster: Cluster, queue: str) -> Attributes:
    body = {"messages": [{"content": "x", "attributes": _as_json(ATTRIBUTES), "key": "k"}]}
    ok(call(cluster[0].http, "POST", path(queue, "messages"), json.dumps(body).encode(), _JSON))
    return ATTRIBUTES


def _push_msgpack(cluster: Cluster, queue: str) -> Attributes:
    body = {"messages": [{"content": b"x", "attributes": ATTRIBUTES}]}
    ok(call(cluster[0].http, "POST", path(queue, "messages"), msgpack.packb(body), _MSGPACK))
    return ATTRIBUTES


def _push_rpc(cluster: Cluster, queue: str) -> Attributes:
    with Rpc(cluster[0].rpc) as rpc:
        assert rpc.call("push", queue, "x", {"attributes": _PACKED}) in {b"ok", b"packing started"}
    return ATTRIBUTES


def _push_waiting(cluster: Cluster, queue: str) -> Attributes:
    with Rpc(cluster[0].rpc) as rpc, Client(cluster[1].rpc) as client:
        client.update_props(queue, {"max_items": 1})
        client.push(queue, "first")
        rpc.ask("push", queue, "x", {"attributes": _PACKED, "wait": 60})
        wait_for(lambda: cluster[1].get_json(path(queue))["pushes_waiting"] == 1, "a waiting push")
        client.pull(queue, 20, auto_ack=True)
        assert rpc.read().result == b"ok"
    return ATTRIBUTES


def _push_marked(cluster: Cluster, queue: str) -> Attributes:
    with Client(cluster[0].rpc) as client:
        client.push_marked(queue, ["x"], job=queue, stream="s", first=0, options=[{"attributes": ATTRIBUTES}])
    return ATTRIBUTES


def _push_in_transaction(cluster: Cluster, queue: str) -> Attributes:
    with Client(cluster[0].rpc) as client, client.transaction() as transaction:
        transaction.push(queue, "x", attributes=ATTRIBUTES, group="g")
    return ATTRIBUTES


def _push_in_json_transaction(cluster: Cluster, queue: str) -> Attributes:
    push = {"op": "push", "queue": queue, "content": "x", "attributes": _as_json(ATTRIBUTES)}
    ok(call(cluster[0].http, "POST", "/v1/transactions", json.dumps({"operations": [push]}).encode(), _JSON))
    return ATTRIBUTES


def _push_over_lmq_http(cluster: Cluster, queue: str) -> Attributes:
    hooks = {"hooks": {"pre_http_push": [["lmq_hook_preserve_header", ["X-Tenant", "x-raw"]]]}}
    ok(call(cluster[0].http, "PATCH", path(queue, "properties"), json.dumps(hooks).encode(), _JSON))
    # On a connection to another node, whose replica may be older, the push could not know of the hook.
    headers = {"X-Tenant": "north", "x-raw": "\xff", "x-other": "1", "traceparent": TRACE, "tracestate": "a=1"}
    ok(call(cluster[0].http, "POST", f"/messages/{queue}", b"x", headers))
    return {"traceparent": TRACE, "tracestate": "a=1", "x-tenant": "north", "x-raw": b"\xff"}


def _push_by_admin(cluster: Cluster, queue: str) -> Attributes:
    options = ("--attribute", "tenant=n\xf6rth", "--attribute", "n:=-5")
    assert run("lmq-admin", "--node", cluster[0].http, "message", "push", queue, "x", *options) == (0, "", "")
    return {"tenant": "n\xf6rth", "n": -5}


PUSHES: Final[dict[str, Push]] = {
    "client": _push_client,
    "asyncio client": _push_async,
    "v1 in JSON": _push_json,
    "v1 in MessagePack": _push_msgpack,
    "MessagePack-RPC": _push_rpc,
    "a push that waits for room": _push_waiting,
    "a job": _push_marked,
    "a transaction": _push_in_transaction,
    "a transaction in JSON": _push_in_json_transaction,
    "LMQ's HTTP": _push_over_lmq_http,
    "lmq-admin": _push_by_admin,
}


# --- journeys ----------------------------------------------------------------------------------------------------------


def _nack(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        message = client.pull(queue, 20)
        assert message is not None
        assert message.nack()
    return queue


def _put_back(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        message = client.pull(queue, 20)
        assert message is not None
        assert message.put_back()
    return queue


def _lease_expiry(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        assert client.pull(queue, 20, lease=0.3) is not None
    waiting(cluster, queue)
    return queue


def _dead_letter(cluster: Cluster, queue: str) -> str:
    dead = f"{queue}.dead"
    with Client(cluster[1].rpc) as client:
        client.update_props(queue, {"dead_letter_queue": dead})
        for _ in range(3):
            message = client.pull(queue, 20)
            assert message is not None
            assert message.nack()
    return dead


def _redrive(cluster: Cluster, queue: str) -> str:
    dead = _dead_letter(cluster, queue)
    with Client(cluster[1].rpc) as client:
        assert client.redrive(dead) == 1
    return queue


def _expiry(cluster: Cluster, queue: str) -> str:
    late = f"{queue}.late"
    with Client(cluster[1].rpc) as client:
        client.update_props(queue, {"expire_to_queue": late, "max_age": 0.2})

        def has_expired() -> bool:
            # A pull finds that the message has expired.
            message = client.pull(queue, 0)
            return message is None or not message.put_back()

        wait_for(has_expired, f"the end of the message in {queue}")
    waiting(cluster, late)
    return late


def _move(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        assert client.move(queue, f"{queue}.moved") == 1
    return f"{queue}.moved"


def _session(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        with client.session(60) as session:
            held = session.pull(queue, 20)
            assert held is not None
            # The same message, whose delivery the session has not confirmed.
            again = client.pull(queue, 0, session=session.id, after="")
            assert again is not None
            assert held.attributes == again.attributes
        waiting(cluster, queue)
    return queue


def _batch(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        client.reserve_batch(queue, 1, queue=queue, count=10)
        [leased] = client.read_batch(queue, 1, 0, 10)
        client.abandon_batches(queue)
        [peeked] = client.peek(queue, 10)
        assert leased.attributes == peeked.attributes
    return queue


def _every_journey(cluster: Cluster, queue: str) -> str:
    with Client(cluster[1].rpc) as client:
        # The redriven message takes it, the pushed one does not.
        client.update_props(queue, {"retry": 9})
    for journey in (_redrive, _nack, _put_back, _lease_expiry, _batch, _session, _move):
        queue = journey(cluster, queue)
    return queue


JOURNEYS: Final[dict[str, Journey]] = {
    "nack": _nack,
    "put back": _put_back,
    "lease expiry": _lease_expiry,
    "dead letter": _dead_letter,
    "redrive": _redrive,
    "expiry to another queue": _expiry,
    "move": _move,
    "session": _session,
    "batch lease": _batch,
    "one after another": _every_journey,
}


# --- reads -------------------------------------------------------------------------------------------------------------


def _read_client(cluster: Cluster, queue: str) -> Attributes:
    with Client(cluster[2].rpc) as client:
        message = client.pull(queue, 20)
        assert message is not None
        return message.attributes


def _read_async(cluster: Cluster, queue: str) -> Attributes:
    async def read() -> Attributes:
        async with AsyncClient(cluster[2].rpc) as client:
            [message] = await client.pull_many(queue, 9, timeout=20)
            return message.attributes

    return asyncio.run(read())


def _read_any(cluster: Cluster, queue: str) -> Attributes:
    with Client(cluster[2].rpc) as client:
        message = client.pull_any(f"^{queue}$", 20)
        assert message is not None
        return message.attributes


def _read_peek(cluster: Cluster, queue: str) -> Attributes:
    with Client(cluster[2].rpc) as client:
        [message] = client.peek(queue, 9)
        name, value = next(iter(message.attributes.items()))
        [selected] = client.peek(queue, 9, attribute=(name, value_text(value)))
        assert selected.attributes == message.attributes
        assert not list(client.peek(queue, 9, attribute=(name, f"{value_text(value)} or not")))
        return message.attributes


def _read_rpc(cluster: Cluster, queue: str) -> Attributes:
    with Rpc(cluster[2].rpc) as rpc:
        rpc.call("producer", f"the producer of {queue}"[:64], 1)
        return unpack_attributes(rpc.call("pull", queue, 20)[b"attributes"])


def _read_json(cluster: Cluster, queue: str) -> Attributes:
    [message] = ok(call(cluster[2].http, "POST", path(queue, "pull"), b'{"timeout": 20}', _JSON)).json["messages"]
    return _from_json(message["attributes"])


def _read_msgpack(cluster: Cluster, queue: str) -> Attributes:
    answer = ok(call(cluster[2].http, "POST", path(queue, "pull"), msgpack.packb({"timeout": 20}), _MSGPACK))
    [message] = msgpack.unpackb(answer.body)["messages"]
    attributes: Attributes = message["attributes"]
    return attributes


def _read_page(cluster: Cluster, queue: str) -> Attributes:
    [message] = ok(call(cluster[2].http, "GET", path(queue, "messages"))).json["messages"]
    attributes = _from_json(message["attributes"])
    for name, value in attributes.items():
        query = urllib.parse.urlencode({"attribute": f"{name}={value_text(value)}"})
        assert ok(call(cluster[2].http, "GET", f"{path(queue, 'messages')}?{query}")).json["messages"], name
        assert not ok(call(cluster[2].http, "GET", f"{path(queue, 'messages')}?{query}+")).json["messages"], name
    return attributes


def _read_drained(cluster: Cluster, queue: str) -> Attributes:
    admin = ("lmq-admin", "--node", cluster[2].http)
    drained = run(*admin, "drain", queue, "--wait", "0")
    assert run(*admin, "replay", "-", "--drained", "--queue", f"{queue}.again", stdin=drained.out).code == 0
    return _read_json(cluster, f"{queue}.again")


READS: Final[dict[str, Read]] = {
    "client": _read_client,
    "asyncio client": _read_async,
    "a pull by pattern": _read_any,
    "a peek": _read_peek,
    "MessagePack-RPC": _read_rpc,
    "v1 in JSON": _read_json,
    "v1 in MessagePack": _read_msgpack,
    "a page of v1": _read_page,
    "drain and replay": _read_drained,
}
