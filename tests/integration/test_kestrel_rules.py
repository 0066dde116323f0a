"""Kestrel's rules for fanout, aliases, creation and deletion, over the memcache port of any node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .cluster import Cluster
from .kestrel_ports import Lines, limit
from .raw_http import call
from .test_kestrel_memcache import END, put, value

STORED = b"STORED\r\n"
HEADER = {"content-type": "application/json"}


@pytest.fixture
def queue(queue_name: str) -> bytes:
    return queue_name.encode()


def patch(cluster: Cluster, queue: bytes, properties: bytes) -> None:
    path = f"/properties/{queue.decode().replace('+', '%2B')}"
    assert call(cluster[0].http, "PATCH", path, properties, HEADER).status == 204


def test_a_full_child_misses_its_copy_and_the_put_succeeds(shared_cluster: Cluster, queue: bytes) -> None:
    child, other = queue + b"+full", queue + b"+other"
    with Lines(shared_cluster[1]) as client:
        client.ask(b"get %b\r\nget %b\r\n" % (child, other), END * 2)
        limit(shared_cluster[0], child.decode(), 1)
        put(client, queue, b"1", b"2")
        for name, left in ((child, [b"1"]), (other, [b"1", b"2"]), (queue, [b"1", b"2"])):
            client.ask(b"get %b\r\n" % name * 3, b"".join(value(name, one) for one in left) + END * (3 - len(left)))


def test_a_parent_that_only_fans_out_keeps_nothing(shared_cluster: Cluster, queue: bytes) -> None:
    child = queue + b"+child"
    patch(shared_cluster, queue, b'{"fanout_only": true, "max_item_size": 3}')
    with Lines(shared_cluster[2]) as client:
        # Without children an item vanishes; its size is still checked.
        client.ask(b"set %b 0 0 1\r\na\r\nset %b 0 0 4\r\nlong\r\n" % (queue, queue), STORED + b"NOT_STORED\r\n")
        client.ask(b"get %b\r\n" % child, END)
        put(client, queue, b"b")
        client.ask(b"get %b\r\nget %b\r\nget %b\r\n" % (queue, child, child), END + value(child, b"b") + END)


def test_an_alias_forwards_and_holds_nothing(shared_cluster: Cluster, queue: bytes) -> None:
    first, second = queue + b"-first", queue + b"-second"
    patch(shared_cluster, queue, b'{"destination_queues": ["%b", "%b"]}' % (first, second))
    with Lines(shared_cluster[1]) as client:
        put(client, queue, b"x")
        # Both return at once although they may wait, and neither reaches the destinations.
        client.ask(b"get %b/t=2147483647\r\nget %b/t=2147483647/open\r\n" % (queue, queue), END * 2)
        client.ask(b"get %b/peek\r\nmonitor %b 1000\r\n" % (queue, queue), END * 2)
        client.ask(b"flush %b\r\ndelete %b\r\n" % (queue, queue), END + b"DELETED\r\n")
        put(client, queue, b"y")
        limit(shared_cluster[0], second.decode(), 2)
        # An item is stored only if all destinations accept it, and then in all of them.
        client.ask(b"set %b 0 0 1\r\nz\r\n" % queue, b"NOT_STORED\r\n")
        for name in (first, second):
            client.ask(b"get %b\r\n" % name * 3, value(name, b"x") + value(name, b"y") + END)


@pytest.mark.parametrize(
    ("request_", "answer", "creates"),
    [
        (b"get %b\r\n", END, True),
        (b"get %b/open\r\n", END, True),
        (b"get %b/peek\r\n", END, True),
        (b"get %b/close\r\n", END, False),
        (b"get %b/abort\r\n", END, False),
        (b"confirm %b 1\r\n", b"ERROR\r\n", False),
        (b"flush %b\r\n", END, False),
        (b"flush_expired %b\r\n", b"0\r\n", False),
        (b"delete %b\r\n", b"DELETED\r\n", False),
        (b"dump_stats %b\r\n", b"queue '%b' {\r\n  \r\n}\r\nEND\r\n", False),
    ],
)
def test_which_requests_create_a_queue(
    shared_cluster: Cluster, new_queue_name: Callable[[], str], request_: bytes, answer: bytes, creates: bool
) -> None:
    parent = new_queue_name().encode()
    child = parent + b"+child"
    with Lines(shared_cluster[0]) as client:
        client.ask(request_ % child, answer % child if b"%b" in answer else answer)
        # A created child gets what is put into its parent from now on.
        put(client, parent, b"x")
        client.ask(b"get %b\r\n" % child, value(child, b"x") if creates else END)


def test_a_deleted_child_ends_its_subscription_and_begins_empty(shared_cluster: Cluster, queue: bytes) -> None:
    child = queue + b"+child"
    with Lines(shared_cluster[0]) as client, Lines(shared_cluster[1]) as other:
        client.ask(b"get %b\r\n" % child, END)
        put(client, queue, b"1")
        client.ask(b"delete %b\r\n" % child, b"DELETED\r\n")
        put(client, queue, b"2")
        client.ask(b"get %b\r\n" % child, END)
        put(client, queue, b"3")
        # The parent's deletion does not affect it, and later puts to the parent's name still reach it.
        client.ask(b"delete %b\r\n" % queue, b"DELETED\r\n")
        put(client, queue, b"4")
        other.ask(b"get %b\r\n" % child * 3, value(child, b"3") + value(child, b"4") + END)


def test_an_old_read_does_not_confirm_the_item_of_another_client(shared_cluster: Cluster, queue: bytes) -> None:
    with Lines(shared_cluster[0]) as old, Lines(shared_cluster[1]) as new:
        put(old, queue, b"old")
        old.ask(b"get %b/open\r\n" % queue, value(queue, b"old"))
        new.ask(b"delete %b\r\n" % queue, b"DELETED\r\n")
        put(new, queue, b"new")
        new.ask(b"get %b/open\r\n" % queue, value(queue, b"new"))
        old.ask(b"get %b/close\r\n" % queue, END)
        new.ask(b"get %b/abort\r\n" % queue, END)
        new.ask(b"get %b/open\r\n" % queue, value(queue, b"new"))
