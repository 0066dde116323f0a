"""Both clients with the options of pushes, pulls and settlements, labels, bindings and transactions, against
a real node.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from lmqcluster import AsyncClient, Client, LmqError
from lmqcluster.client.aio.transactions import Operations
from lmqcluster.wire.attributes import Attributes

from .cluster import NodeProcess, wait_for


class Blocking:
    """A client of either kind whose calls wait for their results."""

    def __init__(self, client: AsyncClient | Client, loop: asyncio.AbstractEventLoop | None) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self.result(getattr(self._client, name), *arguments, **options)

    def result(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of a method of the client or of a message."""
        if self._loop is None:
            return call(*arguments, **options)

        async def made() -> Any:
            value = call(*arguments, **options)
            return await value if inspect.isawaitable(value) else value

        return self._loop.run_until_complete(made())

    def transact(self, fill: Callable[[Operations], object]) -> Operations:
        """Execute a transaction."""
        if isinstance(self._client, Client):
            with self._client.transaction() as blocking:
                fill(blocking)
            return blocking

        async def made(client: AsyncClient) -> Operations:
            async with client.transaction() as transaction:
                fill(transaction)
            return transaction

        assert self._loop is not None
        return self._loop.run_until_complete(made(self._client))

    def contents(self, queue: str) -> list[Any]:
        """Return the contents that can be pulled now."""
        return [message.content for message in self.pull_many(queue, 1000)]

    def within(self, message: Any) -> None:
        """Enter and leave the block of a message."""
        if self._loop is None:
            with message:
                return

        async def made() -> None:
            async with message:
                pass

        self._loop.run_until_complete(made())


@pytest.fixture(params=["async", "blocking"])
def client(request: pytest.FixtureRequest, node: NodeProcess) -> Iterator[Blocking]:
    if request.param == "blocking":
        with Client(node.rpc, decode=True) as made:
            yield Blocking(made, None)
        return
    loop = asyncio.new_event_loop()
    opened = AsyncClient(node.rpc, decode=True)
    yield Blocking(opened, loop)
    loop.run_until_complete(opened.close())
    loop.close()


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(LmqError) as caught:
        call()
    return caught.value.code


# --- push -------------------------------------------------------------------------------------------------------------


def test_a_message_has_its_push_options(client: Blocking, queue_name: str) -> None:
    before_s = time.time()
    assert client.push(queue_name, "later", priority=3, label="l", group="g", delay=None) == "ok"
    assert client.push(queue_name, "first", priority=-1) == "ok"
    assert client.push(queue_name, "plain", priority=0, label=None) == "ok"
    first, plain, later = client.pull_many(queue_name, 10)
    assert [one.content for one in (first, plain, later)] == ["first", "plain", "later"]
    assert (first.priority, first.label, first.group, first.origin) == (-1, None, None, None)
    assert (later.priority, later.label, later.group, later.delivery) == (3, "l", "g", 1)
    assert abs(later.pushed_at - before_s) < 600
    assert (plain.priority, plain.label, plain.delivery, plain.pushed_at) == (0, None, None, None)


def test_a_delayed_message_is_delivered_when_it_is_due(client: Blocking, queue_name: str) -> None:
    begun_s = time.monotonic()
    client.push(queue_name, "delayed", delay=0.5)
    client.push(queue_name, "due", due=time.time() + 0.5)
    assert client.contents(queue_name) == []
    assert {client.pull(queue_name, 60).content for _ in range(2)} == {"delayed", "due"}
    assert time.monotonic() - begun_s >= 0.5


def test_a_message_is_not_delivered_after_its_expiry(client: Blocking, queue_name: str) -> None:
    client.update_props(queue_name, {"expire_to_queue": f"{queue_name}-expired"})
    client.push(queue_name, "stale", ttl=0.2)
    message = client.pull(f"{queue_name}-expired", 60)
    assert message.content == "stale"
    assert (message.origin.queue, message.origin.reason) == (queue_name, "expired")


def test_a_key_deduplicates_pushes_with_options(client: Blocking, queue_name: str) -> None:
    for _ in range(2):
        client.push(queue_name, "x", key="k", label="l")
        client.push_many(queue_name, ["y", "z"], keys=["a", "b"], options=[{"priority": 1}, None])
    client.push(queue_name, "x", label="l")
    assert client.contents(queue_name) == ["x", "z", "x", "y"]


def test_messages_have_attributes(client: Blocking, queue_name: str) -> None:
    attributes: Attributes = {"tenant": "\xe9", "n": -1, "ratio": 0.5, "raw": b"\xff"}
    client.push(queue_name, "w", attributes=attributes)
    client.push_many(queue_name, ["x", "y"], options=[{"priority": 1, "attributes": {"a": "1"}}, {}])
    client.push_many(queue_name, ["z"], keys=["k"], options=[{"attributes": {}}])
    assert [(one.body, one.attributes) for one in client.peek(queue_name, 4)] == [
        (b"\xa1w", attributes),
        (b"\xa1x", {"a": "1"}),
        (b"\xa1y", {}),
        (b"\xa1z", {}),
    ]
    pulled = [client.pull(queue_name) for _ in range(4)]
    assert {one.text: one.attributes for one in pulled} == {"w": attributes, "x": {"a": "1"}, "y": {}, "z": {}}
    client.release(queue_name, pulled[0].id)
    assert client.pull(queue_name).attributes == attributes


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"a": True}, "bad_request"),
        ({"a": None}, "bad_request"),
        ({"a": []}, "bad_request"),
        ({"a": 1 << 63}, "bad_request"),
        ({"a": float("nan")}, "bad_request"),
        ({1: "a"}, "bad_request"),
        ({"": "a"}, "bad_request"),
        ({"a": "\ud800"}, "bad_request"),
        ({"x" * 256: 1}, "bad_request"),
        ({str(number): 1 for number in range(65)}, "too_large"),
        ({"a": "x" * 10_240}, "too_large"),
    ],
)
def test_wrong_attributes_are_refused(client: Blocking, queue_name: str, attributes: Any, code: str) -> None:
    assert code_of(lambda: client.push(queue_name, "x", attributes=attributes)) == code
    assert client.pull(queue_name, 0) is None


def test_peek_shows_all_push_options(client: Blocking, queue_name: str) -> None:
    options = [{"priority": 1}, {"delay": 60}, {"group": "g"}, {"group": "g"}, {"label": "l"}, None]
    contents = [b"%d" % number for number in range(len(options))]
    client.push_many(queue_name, contents, options=options)
    client.push(queue_name, b"plain")
    shown = client.peek(queue_name, 10)
    assert [one.body for one in shown] == [message.body for message in sorted(shown, key=lambda one: one.sequence)]
    assert len(shown) == len(options) + 1
    assert client.pull(queue_name, 0).content == "2"
    assert len(client.peek(queue_name, 10)) == len(options)


def test_a_batch_with_options_may_be_large(client: Blocking, queue_name: str) -> None:
    """It is sent as several requests."""
    size, count = 1 << 20, 12
    options = [{"priority": -number} for number in range(count)]
    contents = [str(number) * size for number in range(count)]
    assert client.push_many(queue_name, contents, options=options) == ["ok"] * count
    assert client.pull(queue_name, 0).content == contents[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"options": [None]},
        {"options": [{"key": "k"}, None]},
        {"content_types": ["a", "b"]},
    ],
    ids=str,
)
def test_conflicting_options_are_refused(client: Blocking, queue_name: str, options: Any) -> None:
    with pytest.raises(ValueError, match=r"key|options"):
        client.push_many(queue_name, ["x", "y"], **options)


def test_an_unknown_option_is_refused(client: Blocking, queue_name: str) -> None:
    with pytest.raises(TypeError, match="no option 'prio'"):
        client.push(queue_name, "x", prio=1)
    assert code_of(lambda: client.push(queue_name, "x", delay=-1)) == "bad_request"
    assert code_of(lambda: client.push(queue_name, "x", priority="1")) == "bad_arguments"
    assert client.contents(queue_name) == []


def test_a_full_queue_is_reported_at_once(client: Blocking, queue_name: str) -> None:
    client.update_props(queue_name, {"max_items": 1})
    assert client.push(queue_name, "1") == "ok"
    assert code_of(lambda: client.push(queue_name, "2")) == "full"
    assert code_of(lambda: client.push(queue_name, "2", label="l")) == "full"
    assert client.push(f"{queue_name}-other", "3") == "ok"
    assert client.contents(queue_name) == ["1"]
    assert code_of(lambda: client.push_many(queue_name, ["4", "5"])) == "stored_in_part"
    assert client.contents(queue_name) == ["4"]


# --- pull and settle --------------------------------------------------------------------------------------------------


def test_a_pull_may_set_its_lease(client: Blocking, queue_name: str) -> None:
    client.push_many(queue_name, ["1", "2"])
    first = client.pull(queue_name, lease=0.2)
    assert [one.content for one in client.pull_many(queue_name, 2, lease=0.2)] == ["2"]
    assert sorted(client.pull(queue_name, 60, lease=60).content for _ in range(2)) == ["1", "2"]
    assert client.result(first.ack) is False
    assert client.pull(queue_name, 0, lease=1) is None


def test_auto_ack_leaves_no_lease(client: Blocking, queue_name: str) -> None:
    client.push_many(queue_name, ["1", "2", "3"])
    message = client.pull(queue_name, auto_ack=True)
    assert message.content == "1"
    client.within(message)
    assert client.result(message.ack) is False
    assert [one.content for one in client.pull_many(queue_name, 10, auto_ack=True)] == ["2", "3"]
    assert client.pull(queue_name, 0, auto_ack=True) is None
    assert client.purge(queue_name) == 0


def test_a_message_returns_to_the_head_or_after_a_delay(client: Blocking, queue_name: str) -> None:
    client.push_many(queue_name, ["1", "2", "3"])
    first, second = client.pull_many(queue_name, 2)
    assert client.result(second.nack, place="head") is True
    assert client.release(queue_name, first.id, place="head") is True
    again = client.pull_many(queue_name, 10)
    assert [one.content for one in again] == ["1", "2", "3"]
    assert client.result(again[0].nack, delay=600) is True
    assert client.release_many(queue_name, [one.id for one in again], delay=600) == [False, True, True]
    assert client.contents(queue_name) == []
    with pytest.raises(ValueError, match="a place is one of"):
        client.release(queue_name, first.id, place="middle")


def test_a_lease_is_extended_by_its_own_time(client: Blocking, queue_name: str) -> None:
    client.push_many(queue_name, ["1", "2", "3"])
    first, second, third = client.pull_many(queue_name, 3)
    assert client.result(first.extend, lease=0.2) is True
    assert client.retain(queue_name, second.id, lease=0.2) is True
    assert client.retain_many(queue_name, [third.id], lease=0.2) == [True]
    assert sorted(client.pull(queue_name, 60).content for _ in range(3)) == ["1", "2", "3"]


# --- labels, dead letters, bindings -----------------------------------------------------------------------------------


def test_labels_are_counted_and_withdrawn(client: Blocking, queue_name: str) -> None:
    client.push_many(queue_name, ["1", "2", "3"], options=[{"label": "x"}, {"label": "x"}, {"label": "x"}])
    assert client.count_labelled(queue_name, "x") == 3
    assert client.withdraw(queue_name, "x", 1) == 1
    assert client.withdraw(queue_name, "x") == 2
    assert code_of(lambda: client.withdraw(f"{queue_name}-none", "x")) == "queue_not_found"
    with pytest.raises(ValueError, match="max must be 1 or more"):
        client.withdraw(queue_name, "x", 0)
    for content in "12":
        client.push(queue_name, content, label="x", attributes={"number": int(content)})
    assert client.withdraw(queue_name, "x", attribute=("number", "2")) == 1
    assert client.withdraw(queue_name, "x", 5, ("number", "2")) == 0
    assert client.withdraw(queue_name, "x", 5, ("number", "1")) == 1


def test_dead_letters_are_redriven(client: Blocking, queue_name: str) -> None:
    dead = f"{queue_name}-dead"
    client.update_props(queue_name, {"retry": 0, "dead_letter_queue": dead})
    client.push_many(queue_name, ["1", "2", "3"], options=[{"label": "x"}, None, None])
    client.release_many(queue_name, [one.id for one in client.pull_many(queue_name, 3)])
    letter = client.pull(dead, 0)
    assert (letter.origin.queue, letter.origin.reason, letter.origin.deliveries) == (queue_name, "exhausted", 1)
    client.result(letter.put_back)
    assert client.redrive(dead, label="x") == 1
    assert client.redrive(dead, to=f"{queue_name}-else", max=1) == 1
    assert client.redrive(dead) == 1
    assert client.contents(queue_name) == ["1", "3"]
    assert client.contents(f"{queue_name}-else") == ["2"]
    with pytest.raises(ValueError, match="max must be 1 or more"):
        client.redrive(dead, max=0)


def test_bound_queues_get_copies(client: Blocking, queue_name: str) -> None:
    copy = f"{queue_name}-copy"
    assert client.bind(queue_name, copy) is True
    assert client.bind(queue_name, copy) is False
    assert client.bindings(queue_name) == [copy]
    client.push(queue_name, "x")
    assert client.contents(copy) == ["x"]
    assert client.unbind(queue_name, copy) is True
    assert client.unbind(queue_name, copy) is False
    assert client.bindings(queue_name) == []


# --- transactions -----------------------------------------------------------------------------------------------------


def test_consume_and_produce_in_one_step(client: Blocking, queue_name: str) -> None:
    source, target = f"{queue_name}-in", f"{queue_name}-out"
    client.push_many(source, ["1", "2", "3"])
    first, second, third = client.pull_many(source, 3)

    def fill(transaction: Operations) -> None:
        transaction.done(first)
        transaction.release(source, second.id, place="head")
        transaction.retain(third, lease=60)
        transaction.push(target, {"a": 1}, priority=1)
        transaction.push(target, "b")

    assert client.transact(fill).results == ["ok"] * 5
    assert client.contents(target) == ["b", {"a": 1}]
    assert client.contents(source) == ["2"]
    # The message's block does nothing more with a message that it has settled.
    client.within(first)
    assert code_of(lambda: client.transact(fill)) == "lease_lost"
    assert client.contents(target) == []


def test_tasks_move_messages_without_further_calls(client: Blocking, queue_name: str) -> None:
    target = queue_name + "-target"
    client.push_many(queue_name, ["x"] * 100)
    client.push(target, "x")
    slow = client.start_move_task(queue_name, to=target, rate=1)
    with pytest.raises(LmqError) as caught:
        client.start_move_task(queue_name, to=target)
    assert caught.value.code == "conflict"
    (task,) = client.move_tasks(queue_name)
    assert (task["number"], task["status"], task["to"], task["rate"]) == (slow, "running", target, 1)
    assert (task["to_move"], task["failure"]) == (100, None)
    assert abs(task["started_at"] - time.time()) < 60
    moved = client.cancel_move_task(queue_name, slow)
    assert moved < 100
    with pytest.raises(LmqError) as caught:
        client.cancel_move_task(queue_name, slow)
    assert caught.value.code == "task_not_found"
    client.start_move_task(queue_name, to=target)
    wait_for(lambda: client.move_tasks(queue_name)[0]["status"] == "completed", "the end of the task")
    assert [one["status"] for one in client.move_tasks(queue_name)] == ["completed", "cancelled"]
    assert client.move_tasks(queue_name)[0]["moved"] == 100 - moved


def test_a_transaction_without_operations_succeeds(client: Blocking) -> None:
    assert client.transact(lambda _transaction: None).results == []


def test_an_exception_in_the_block_sends_nothing(client: Blocking, queue_name: str) -> None:
    kept: list[Operations] = []

    def fill(transaction: Operations) -> None:
        kept.append(transaction)
        transaction.push(queue_name, "x")
        raise KeyError("oops")

    with pytest.raises(KeyError):
        client.transact(fill)
    assert kept[0].results is None
    assert client.contents(queue_name) == []
    with pytest.raises(RuntimeError, match="has ended"):
        kept[0].push(queue_name, "x")


def test_a_transaction_is_applied_entirely_or_not_at_all(client: Blocking, queue_name: str) -> None:
    full = f"{queue_name}-full"
    client.update_props(full, {"max_items": 0})
    client.push(queue_name, "x")
    message = client.pull(queue_name)

    def fill(transaction: Operations) -> None:
        transaction.done(message)
        transaction.push(full, "y")

    assert code_of(lambda: client.transact(fill)) == "full"
    client.within(message)
    assert client.result(message.ack) is False, "the block acked it"


def test_a_transaction_stores_bodies_with_types_and_attributes(client: Blocking, queue_name: str) -> None:
    def fill(transaction: Operations) -> None:
        transaction.push(queue_name, b"a,b", content_type="text/csv", attributes={"kept": 1})
        transaction.push(queue_name, [1], attributes={"kept": "3"}, label="l")

    client.transact(fill)
    assert [(one.content_type, one.attributes, one.body) for one in client.peek(queue_name, 10)] == [
        ("text/csv", {"kept": 1}, b"a,b"),
        ("application/x-msgpack", {"kept": "3"}, b"\x91\x01"),
    ]
    bad = partial(Operations.push, queue=queue_name, content=b"x", content_type="x" * 5000)
    assert code_of(partial(client.transact, bad)) == "bad_arguments"
    assert code_of(lambda: client.transact(lambda one: one.push(queue_name, [1], content_type="text/csv"))) == (
        "bad_arguments"
    )


def test_a_transaction_needs_a_message_or_a_queue_and_an_id(client: Blocking, queue_name: str) -> None:
    client.push(queue_name, "x")
    message = client.pull(queue_name)
    with pytest.raises(TypeError, match="give a message"):
        client.transact(lambda transaction: transaction.done(queue_name))
    with pytest.raises(TypeError, match="has its id"):
        client.transact(lambda transaction: transaction.done(message, message.id))
