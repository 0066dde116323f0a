"""LMQ over MessagePack-RPC, specification 2: delivery, order, retry accounting, replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .cluster import NodeProcess
from .raw_rpc import Rpc, open_rpc


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


def contents(rpc: Rpc, queue_name: str) -> list[object]:
    """Return all contents that can be pulled now, in order."""
    found = []
    while (message := rpc.call("pull", queue_name, 0)) != b"empty":
        found.append(message[b"content"])
    return found


# --- 2.1, 2.2: order and redelivery -----------------------------------------------------------------------------------


def test_fresh_messages_are_delivered_in_the_order_pushed(rpc: Rpc, queue_name: str) -> None:
    """2.2: FIFO for fresh messages."""
    for number in range(20):
        rpc.call("push", queue_name, number)
    assert contents(rpc, queue_name) == list(range(20))


def test_delivered_message_is_not_delivered_again_while_leased(rpc: Rpc, queue_name: str) -> None:
    """1: a message is delivered to one client at a time."""
    rpc.call("push", queue_name, 1)
    assert rpc.call("pull", queue_name, 0)[b"content"] == 1
    assert rpc.call("pull", queue_name, 0) == b"empty"


def test_released_message_goes_behind_waiting_messages(rpc: Rpc, queue_name: str) -> None:
    """2.1 nack: due now, available, deliveries unchanged; 2.2: behind everything already waiting; 14: not
    before them.
    """
    for number in range(3):
        rpc.call("push", queue_name, number)
    first = rpc.call("pull", queue_name, 0)
    assert rpc.call("release", queue_name, first[b"id"]) == b"ok"
    again = [rpc.call("pull", queue_name, 0) for _ in range(3)]
    assert [m[b"content"] for m in again] == [1, 2, 0]
    assert [m[b"retry"] for m in again] == [2, 2, 1]
    assert again[2][b"id"] != first[b"id"]


def test_timed_out_message_precedes_messages_pushed_after_its_deadline(rpc: Rpc, queue_name: str) -> None:
    """2.2: a timed-out message is ordered by its deadline."""
    rpc.call("update_props", queue_name, {"timeout": 0})
    rpc.call("push", queue_name, "early")
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"early"
    rpc.call("push", queue_name, "late")
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"early"


def test_timed_out_message_follows_messages_pushed_before_its_deadline(rpc: Rpc, queue_name: str) -> None:
    """2.2: a timed-out message is ordered by its deadline."""
    rpc.call("update_props", queue_name, {"timeout": 0.2})
    rpc.call("push", queue_name, "leased")
    leased, pushed = rpc.many([("pull", queue_name, 0), ("push", queue_name, "waiting")])
    assert (leased.result[b"content"], pushed.result) == (b"leased", b"ok")
    rpc.call("update_props", queue_name, {"timeout": 60})
    # Whether or not the lease has expired when "waiting" is taken, "waiting" is due first.
    assert [rpc.call("pull", queue_name, 20)[b"content"] for _ in range(2)] == [b"waiting", b"leased"]


def test_blocked_puller_wakes_when_a_lease_ends(rpc: Rpc, queue_name: str) -> None:
    """2.2: timed-out messages need no background job: a blocked puller simply wakes at the first due time."""
    rpc.call("update_props", queue_name, {"timeout": 0.3})
    rpc.call("push", queue_name, "x")
    first = rpc.call("pull", queue_name, 0)
    second = rpc.call("pull", queue_name)
    assert second[b"content"] == b"x"
    assert (first[b"retry"], second[b"retry"]) == (2, 1)
    assert first[b"id"] != second[b"id"]


def test_lease_uses_the_timeout_at_delivery(rpc: Rpc, queue_name: str) -> None:
    """2.2: due time now + the queue's current timeout, also for messages pushed before it changed."""
    rpc.call("push", queue_name, "x")
    rpc.call("update_props", queue_name, {"timeout": 0})
    assert [rpc.call("pull", queue_name, 0)[b"retry"] for _ in range(2)] == [2, 1]


# --- 2.3: retry accounting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retry", [0, 1, 2, 5])
def test_retry_counts_down_and_then_the_message_is_gone(rpc: Rpc, queue_name: str, retry: int) -> None:
    """2.3: with retry 2: 2, then 1, then 0, then gone; with retry 0 one delivery showing 0. 2.5: timeout 0."""
    rpc.call("update_props", queue_name, {"retry": retry, "timeout": 0})
    rpc.call("push", queue_name, "x")
    assert [rpc.call("pull", queue_name, 0)[b"retry"] for _ in range(retry + 1)] == list(range(retry, -1, -1))
    assert rpc.call("pull", queue_name, 0) == b"empty"


@pytest.mark.parametrize("retry", [-1, -2, -(2**40)])
def test_negative_retry_is_refused(rpc: Rpc, queue_name: str, retry: int) -> None:
    """2.3: LMQ accepts it, and then every push that it acknowledges is lost."""
    assert rpc.error("update_props", queue_name, {"retry": retry}) == b"throw:invalid"
    assert rpc.call("push", queue_name, "x") == b"ok"
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"x"


def test_large_retry_is_shown(rpc: Rpc, queue_name: str) -> None:
    """10.3: retry is an integer of any size."""
    rpc.call("update_props", queue_name, {"retry": 2**40})
    rpc.call("push", queue_name, "x")
    assert rpc.call("pull", queue_name, 0)[b"retry"] == 2**40


def test_release_on_the_last_delivery_is_accepted_and_the_message_vanishes(rpc: Rpc, queue_name: str) -> None:
    """2.3: nack on the last delivery is accepted and the message then vanishes."""
    rpc.call("update_props", queue_name, {"retry": 0})
    rpc.call("push", queue_name, "x")
    assert rpc.call("release", queue_name, rpc.call("pull", queue_name, 0)[b"id"]) == b"ok"
    assert rpc.call("pull", queue_name, 0) == b"empty"


def test_retain_costs_no_retry(rpc: Rpc, queue_name: str) -> None:
    """2.3: ext/retain cost nothing; 2.1: the id stays."""
    rpc.call("push", queue_name, "x")
    message = rpc.call("pull", queue_name, 0)
    for _ in range(3):
        assert rpc.call("retain", queue_name, message[b"id"]) == b"ok"
    assert rpc.call("release", queue_name, message[b"id"]) == b"ok"
    assert rpc.call("pull", queue_name, 0)[b"retry"] == 1


def test_retain_lets_the_lease_end_a_full_timeout_from_now(rpc: Rpc, queue_name: str) -> None:
    """2.1 ext: due now + timeout; 3.2: by the current timeout."""
    rpc.call("update_props", queue_name, {"timeout": 60})
    rpc.call("push", queue_name, "x")
    message = rpc.call("pull", queue_name, 0)
    rpc.call("update_props", queue_name, {"timeout": 0.1})
    assert rpc.call("retain", queue_name, message[b"id"]) == b"ok"
    assert rpc.call("pull", queue_name, 20)[b"content"] == b"x"
    assert rpc.error("done", queue_name, message[b"id"]) == b"throw:not_found"


def test_retry_is_fixed_at_push(rpc: Rpc, queue_name: str) -> None:
    """2.3: changing retry later does not affect messages already in the queue."""
    rpc.call("push", queue_name, "x")
    rpc.call("update_props", queue_name, {"retry": 0})
    rpc.call("push", queue_name, "y")
    assert [rpc.call("pull", queue_name, 0)[b"retry"] for _ in range(2)] == [2, 0]


def test_very_many_exhausted_messages_do_not_hide_the_next_one(rpc: Rpc, queue_name: str) -> None:
    """2.2: an exhausted entry is dropped and the next one looked at; passing over very many must not block
    the queue.
    """
    rpc.call("update_props", queue_name, {"retry": 0, "timeout": 0})
    for _ in range(3):
        rpc.call("push_many", queue_name, [0] * 10_000)
        rpc.call("pull_many", queue_name, 10_000)
    rpc.call("update_props", queue_name, {"retry": 2})
    rpc.call("push", queue_name, "deliverable")
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"deliverable"


def test_very_many_exhausted_messages_do_not_hold_up_a_blocked_pull(rpc: Rpc, queue_name: str) -> None:
    """2.2: as above, for a pull that waits."""
    rpc.call("update_props", queue_name, {"retry": 0, "timeout": 0})
    for _ in range(3):
        rpc.call("push_many", queue_name, [0] * 10_000)
        rpc.call("pull_many", queue_name, 10_000)
    waiting = rpc.ask("pull", queue_name)
    rpc.ask("update_props", queue_name, {"retry": 2})
    rpc.ask("push", queue_name, "deliverable")
    replies = {reply.msgid: reply for reply in (rpc.read() for _ in range(3))}
    assert replies[waiting].result[b"content"] == b"deliverable"


# --- 2.4: replies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["done", "release"])
@pytest.mark.parametrize("second", ["done", "retain", "release"])
def test_id_is_dead_after_done_and_release(rpc: Rpc, queue_name: str, first: str, second: str) -> None:
    """2.4: already acked, nacked: the reply fails; 2.1: nack makes the id dead."""
    rpc.call("push", queue_name, 1)
    message = rpc.call("pull", queue_name, 0)
    assert rpc.call(first, queue_name, message[b"id"]) == b"ok"
    assert rpc.error(second, queue_name, message[b"id"]) == b"throw:not_found"


def test_id_is_dead_after_the_timeout(rpc: Rpc, queue_name: str) -> None:
    """2.4: timed out, redelivered under a new id: the reply to the old one fails, to the new one succeeds."""
    rpc.call("update_props", queue_name, {"timeout": 0.2})
    rpc.call("push", queue_name, 1)
    old_id = rpc.call("pull", queue_name, 0)[b"id"]
    rpc.call("update_props", queue_name, {"timeout": 60})
    new_id = rpc.call("pull", queue_name)[b"id"]
    for method in ("done", "retain", "release"):
        assert rpc.error(method, queue_name, old_id) == b"throw:not_found"
    assert rpc.call("done", queue_name, new_id) == b"ok"


@pytest.mark.parametrize("method", ["done", "retain", "release"])
def test_no_reply_succeeds_with_timeout_0(rpc: Rpc, queue_name: str, method: str) -> None:
    """2.5: timeout 0 makes every delivery expire instantly; no reply to any of those ids ever succeeds."""
    rpc.call("update_props", queue_name, {"timeout": 0})
    rpc.call("push", queue_name, 1)
    message = rpc.call("pull", queue_name, 0)
    assert rpc.error(method, queue_name, message[b"id"]) == b"throw:not_found"


def test_reply_needs_the_right_queue(rpc: Rpc, queue_name: str) -> None:
    """2.4: in exactly the named queue."""
    other = queue_name + "-other"
    rpc.call("update_props", other)
    rpc.call("push", queue_name, 1)
    message = rpc.call("pull", queue_name, 0)
    for method in ("done", "retain", "release"):
        assert rpc.error(method, other, message[b"id"]) == b"throw:not_found"
    assert rpc.call("done", queue_name, message[b"id"]) == b"ok"


@pytest.mark.parametrize(
    "shape",
    [bytes.upper, lambda i: i.replace(b"-", b""), lambda i: i.replace(b"-", b"").upper()],
    ids=["upper case", "no dashes", "both"],
)
def test_ids_in_upper_case_and_without_dashes_are_accepted(
    rpc: Rpc, queue_name: str, shape: Callable[[bytes], bytes]
) -> None:
    """2.4: ids are accepted in upper case and without dashes too."""
    rpc.call("push", queue_name, 1)
    message = rpc.call("pull", queue_name, 0)
    assert rpc.call("done", queue_name, shape(message[b"id"])) == b"ok"


def test_id_of_a_deleted_queue_is_dead(rpc: Rpc, queue_name: str) -> None:
    """2.4 and 8.6: the queue and its messages are gone, also for a queue of the same name created later."""
    rpc.call("push", queue_name, 1)
    message = rpc.call("pull", queue_name, 0)
    rpc.call("delete", queue_name)
    assert rpc.error("done", queue_name, message[b"id"]) == b"throw:queue_not_found"
    rpc.call("push", queue_name, 2)
    assert rpc.error("done", queue_name, message[b"id"]) == b"throw:not_found"
    assert rpc.call("pull", queue_name, 0)[b"content"] == 2


def test_exactly_one_of_several_concurrent_dones_succeeds(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """2.4: exactly one of several concurrent acks of one id succeeds."""
    rpc.call("push_many", queue_name, list(range(20)))
    ids = [rpc.call("pull", queue_name, 0)[b"id"] for _ in range(20)]
    with open_rpc(node.rpc, 8) as connections:
        for identifier in ids:
            for connection in connections:
                connection.ask("done", queue_name, identifier)
        answers = [[connection.read() for _ in ids] for connection in connections]
    for position in range(20):
        errors = [replies[position].error for replies in answers]
        assert sorted(errors, key=str) == sorted([None, *[b"throw:not_found"] * 7], key=str)


def test_done_in_any_order_with_many_in_flight(rpc: Rpc, queue_name: str) -> None:
    """15.1: any of thousands in flight can be acknowledged, in any order."""
    rpc.call("push_many", queue_name, list(range(5000)))
    ids = [m[b"id"] for m in rpc.call("pull_many", queue_name, 5000)]
    shuffled = ids[::3] + ids[1::3] + ids[2::3][::-1]
    replies = rpc.many([("done", queue_name, identifier) for identifier in shuffled])
    assert all(reply.result == b"ok" for reply in replies)
    assert all(error == b"throw:not_found" for error in (rpc.error("done", queue_name, i) for i in ids[:5]))
