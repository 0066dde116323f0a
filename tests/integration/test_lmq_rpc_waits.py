"""LMQ over MessagePack-RPC, specification 4 and 13: waiting pulls, and clients that disconnect."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .cluster import NodeProcess
from .raw_rpc import Rpc, open_rpc


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


def wait_in_line(connection: Rpc, method: str, *arguments: object) -> int:
    """Send a request that waits; return its msgid once a later request of the connection was answered.

    The pull is in the log before the second request, whose answer shows that both were applied.
    """
    waiting = connection.ask(method, *arguments)
    barrier = connection.ask("get_default_props")
    assert connection.read().msgid == barrier
    return waiting


def test_waiting_pullers_are_served_first_come_first_served(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: waiting pullers of a queue are served first come, first served (per node)."""
    with open_rpc(node.rpc, 20) as connections:
        for connection in connections:
            wait_in_line(connection, "pull", queue_name)
        for number in range(20):
            rpc.call("push", queue_name, number)
        assert [connection.read().result[b"content"] for connection in connections] == list(range(20))


def test_pulls_of_one_connection_are_served_in_order(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: first come, first served, with and without a limit, on one connection."""
    with Rpc(node.rpc) as connection:
        waiting = [connection.ask("pull", queue_name, *limit) for limit in [(), (30,), (), (30.5,)]]
        connection.settle()
        rpc.call("push_many", queue_name, [0, 1, 2, 3])
        answers = {reply.msgid: reply.result[b"content"] for reply in (connection.read() for _ in range(4))}
    assert [answers[msgid] for msgid in waiting] == [0, 1, 2, 3]


def test_one_push_wakes_one_puller(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: one push wakes one puller; the others keep waiting and get later messages, uncharged."""
    with open_rpc(node.rpc, 5) as connections:
        for connection in connections:
            wait_in_line(connection, "pull", queue_name)
        for number, connection in enumerate(connections):
            rpc.call("push", queue_name, number)
            message = connection.read().result
            assert (message[b"content"], message[b"retry"]) == (number, 2)
            for other in connections[number + 1 :]:
                other.settle()


def test_fifty_blocked_pullers(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """13: 50 or more simultaneous blocked pullers on one queue; none is forgotten, nothing is delivered twice."""
    with open_rpc(node.rpc, 60) as connections:
        for connection in connections:
            connection.ask("pull", queue_name)
        for connection in connections:
            connection.ask("ping")
            assert connection.read().result == b"pong"
        for number in range(60):
            rpc.ask("push", queue_name, number)
        assert sorted(c.read().result[b"content"] for c in connections) == list(range(60))


def test_puller_that_got_empty_has_not_consumed_a_message(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: a puller that got `empty` must not have consumed a message; 15.5: very short waits nearly always did."""
    count = 300
    with Rpc(node.rpc) as puller:
        got: list[object] = []
        for number in range(count):
            puller.ask("pull", queue_name, (number % 7) * 0.0005)
            rpc.ask("push", queue_name, number)
            message = puller.read().result
            if message != b"empty":
                got.append(message[b"content"])
                assert message[b"retry"] == 2
        for _ in range(count):
            assert rpc.read().result == b"ok"
    left = rpc.call("pull_many", queue_name, count)
    assert all(message[b"retry"] == 2 for message in left)
    assert sorted([*got, *(message[b"content"] for message in left)]) == list(range(count))


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("call", [("pull",), ("pull", 3600), ("pull_many", 10, 3600)], ids=str)
def test_disconnected_puller_is_forgotten(node: NodeProcess, rpc: Rpc, queue_name: str, call: tuple, end: str) -> None:
    """4: a waiting client that disconnects is forgotten; it must not consume a message; 15.6. Those behind it
    are served.
    """
    with Rpc(node.rpc) as first, Rpc(node.rpc) as gone, Rpc(node.rpc) as behind:
        wait_in_line(first, "pull", queue_name)
        wait_in_line(gone, call[0], queue_name, *call[1:])
        wait_in_line(behind, "pull", queue_name)
        getattr(gone, end)()
        rpc.call("push_many", queue_name, [1, 2, 3])
        assert first.read().result[b"content"] == 1
        served = behind.read().result
    # If the node had not noticed the disconnect yet, the message was returned, uncharged, to its old position.
    rest = [rpc.call("pull", queue_name, 20)]
    assert sorted([served[b"content"], rest[0][b"content"]]) == [2, 3]
    assert served[b"retry"] == rest[0][b"retry"] == 2


def test_disconnected_puller_of_any_queue_is_forgotten(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: this holds for plain and multi pulls."""
    with Rpc(node.rpc) as gone, Rpc(node.rpc) as behind:
        wait_in_line(gone, "pull_any", f"^{queue_name}")
        wait_in_line(behind, "pull_any", f"^{queue_name}")
        gone.abort()
        rpc.call("push", queue_name + "-a", "x")
        message = behind.read().result
        assert (message[b"content"], message[b"retry"]) == (b"x", 2)


def test_killing_many_pullers_while_messages_come_loses_none(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """13: none is lost by concurrent pushes, pulls and disconnects.

    A message whose response was already in flight to a client that died is redelivered after its timeout.
    """
    rpc.call("update_props", queue_name, {"timeout": 1, "retry": 100})
    for number in range(40):
        with Rpc(node.rpc) as victim:
            victim.ask("pull", queue_name)
            rpc.call("push", queue_name, number)
            victim.abort()
    rpc.call("update_props", queue_name, {"timeout": 60})
    assert sorted(rpc.call("pull", queue_name)[b"content"] for _ in range(40)) == list(range(40))
    assert rpc.call("pull", queue_name, 0) == b"empty"


def test_deleting_a_queue_does_not_end_the_waits_on_it(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4 and 15.12: waiters stay attached to the name and get messages of a re-created queue."""
    rpc.call("update_props", queue_name)
    with Rpc(node.rpc) as forever, Rpc(node.rpc) as limited, Rpc(node.rpc) as several:
        wait_in_line(forever, "pull", queue_name)
        wait_in_line(limited, "pull", queue_name, 3600)
        wait_in_line(several, "pull_many", queue_name, 2, 3600)
        assert rpc.call("delete", queue_name) == b"ok"
        rpc.call("push_many", queue_name, [1, 2, 3, 4])
        assert forever.read().result[b"content"] == 1
        assert limited.read().result[b"content"] == 2
        assert [m[b"content"] for m in several.read().result] == [3, 4]


def test_wait_ends_though_the_queue_was_deleted(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: a wait on a deleted queue still has its time limit."""
    with Rpc(node.rpc) as puller:
        wait_in_line(puller, "pull", queue_name, 0.3)
        rpc.call("delete", queue_name)
        assert puller.read().result == b"empty"


# --- any queue --------------------------------------------------------------------------------------------------------


def test_pull_any_sees_queues_created_later(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: waits on all queues whose name matches, including queues created after the request was received."""
    with Rpc(node.rpc) as puller:
        wait_in_line(puller, "pull_any", f"^{queue_name}-[ab]$")
        rpc.call("push", queue_name + "-c", "does not match")
        rpc.call("push", queue_name + "-b", "matches")
        message = puller.read().result
        assert (message[b"queue"], message[b"content"]) == (f"{queue_name}-b".encode(), b"matches")
    assert rpc.call("pull", queue_name + "-c", 0)[b"retry"] == 2


def test_pull_any_consumes_exactly_one_message(
    node: NodeProcess, rpc: Rpc, queue_name: str, new_queue_name: Callable[[], str]
) -> None:
    """4: exactly one is consumed; if several queues offered one the others are put back at no retry cost."""
    names = [f"{queue_name}-{i}" for i in range(10)]
    with Rpc(node.rpc) as puller:
        waiting = wait_in_line(puller, "pull_any", f"^{queue_name}-")
        replies = rpc.many([("push", name, name) for name in names])
        assert all(reply.result == b"ok" for reply in replies)
        reply = puller.read()
        assert reply.msgid == waiting
        taken = reply.result[b"queue"].decode()
    for name in names:
        message = rpc.call("pull", name, 0 if name == taken else 20)
        if name == taken:
            assert message == b"empty"
        else:
            assert (message[b"content"], message[b"retry"]) == (name.encode(), 2)


def test_pull_any_is_fair_to_queues(rpc: Rpc, queue_name: str) -> None:
    """15.11: with backlog in several queues none starves: the message that is due first is delivered first; 14: fair is
    better.
    """
    for number in range(10):
        for letter in "ab":
            rpc.call("push", f"{queue_name}-{letter}", number)
    order = [rpc.call("pull_any", f"^{queue_name}-", 0)[b"content"] for _ in range(20)]
    assert order == [number for number in range(10) for _ in "ab"]


def test_pull_any_wakes_for_windows_and_ended_leases(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """2.2 and 4: a blocked puller wakes at the first due time, for pull any too."""
    rpc.call("update_props", queue_name + "-window", {"pack": 0.3})
    rpc.call("update_props", queue_name + "-lease", {"timeout": 0.3})
    rpc.call("push", queue_name + "-lease", "leased")
    assert rpc.call("pull", queue_name + "-lease", 0)[b"content"] == b"leased"
    rpc.call("update_props", queue_name + "-lease", {"timeout": 60})
    rpc.call("push", queue_name + "-window", "packed")
    found = [rpc.call("pull_any", f"^{queue_name}-")[b"content"] for _ in range(2)]
    assert sorted(found, key=str) == [[b"packed"], b"leased"]


def test_pullers_of_a_queue_and_of_any_share_its_messages(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """4: both kinds of waits on one queue; no message reaches two of them, none is kept."""
    with open_rpc(node.rpc, 10) as connections:
        for number, connection in enumerate(connections):
            if number % 2:
                wait_in_line(connection, "pull", queue_name)
            else:
                wait_in_line(connection, "pull_any", f"^{queue_name}$")
        for number in range(10):
            rpc.call("push", queue_name, number)
        messages = [connection.read().result for connection in connections]
    assert sorted(message[b"content"] for message in messages) == list(range(10))
    assert all(message[b"retry"] == 2 for message in messages)
