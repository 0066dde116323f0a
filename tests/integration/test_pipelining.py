"""Requests sent on one connection without waiting for answers: any number, none refused, none blocking another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgpack

from .cluster import NodeProcess
from .guarded_node import guarded_node
from .raw_rpc import Reply, Rpc, contents, notification, open_rpc, pull_all, request

MANY = 1_000


def errors(replies: list[Reply]) -> set[Any]:
    return {reply.error for reply in replies} - {None}


def test_transactions(node: NodeProcess, queue_name: str) -> None:
    """They take effect in the order in which they were sent, among each other and with plain pushes."""
    with Rpc(node.rpc) as rpc:
        requests: list[tuple[Any, ...]] = []
        for number in range(0, MANY, 2):
            requests.append(("transaction", [["push", queue_name, str(number)]]))
            requests.append(("push", queue_name, str(number + 1)))
        assert errors(rpc.many(requests)) == set()
        assert pull_all(rpc, queue_name) == [str(number).encode() for number in range(MANY)]


def test_operations_of_several_steps(node: NodeProcess, queue_name: str) -> None:
    with Rpc(node.rpc) as rpc:
        session = rpc.call("open_session", 60)
        rpc.call("push", queue_name, "x")
        one_of_each = [
            ("purge", queue_name),
            ("suspend", queue_name),
            ("resume", queue_name),
            ("push_all", "^nothing$", "x"),
            ("leave_queue", queue_name, session),
            ("subscriptions",),
            ("peek", queue_name, 10, 0),
            ("mark", "job", "stream"),
        ]
        assert errors(rpc.many(one_of_each * 50)) == set()


def test_waiting_pushes_and_the_pulls_that_make_room_for_them(node: NodeProcess, queue_name: str) -> None:
    """A waiting request must not keep the node from reading the request it waits for."""
    with Rpc(node.rpc) as rpc:
        rpc.call("update_props", queue_name, {"max_items": 1})
        pushes = [("push", queue_name, str(number), {"wait": 120}) for number in range(200)]
        pulls = [("pull", queue_name, 120, {"auto_ack": True})] * 200
        replies = rpc.many([*pushes, *pulls])
        assert errors(replies) == set()
        assert contents([reply.result for reply in replies[200:]]) == [str(number).encode() for number in range(200)]


def test_waiting_locks_and_the_unlock_after_them(node: NodeProcess, queue_name: str) -> None:
    with Rpc(node.rpc) as rpc:
        sessions = [reply.result for reply in rpc.many([("open_session", 60)] * 100)]
        asked = [("lock", queue_name, session, 120) for session in sessions]
        first, *others = (rpc.ask(*one) for one in asked)
        assert rpc.read().msgid == first
        for session, following in zip(sessions, [*others, None], strict=True):
            unlocked = rpc.ask("unlock", queue_name, session)
            replies = {reply.msgid: reply for reply in [rpc.read() for _ in range(1 if following is None else 2)]}
            assert replies.keys() == {unlocked} | ({following} - {None})
            assert errors(list(replies.values())) == set()


def test_waiting_pulls_and_the_pushes_after_them(node: NodeProcess, queue_name: str) -> None:
    count = 60_000
    with Rpc(node.rpc) as rpc:
        rpc.send(b"".join(request(number, "pull", queue_name) for number in range(count)))
        # The same connection, whose only unanswered requests are pulls, still executes other requests.
        rpc.settle()
        rpc.send(b"".join(notification("push", queue_name, "x") for _ in range(count)))
        assert errors([rpc.read() for _ in range(count)]) == set()


def test_waiting_requests_are_bounded_by_memory(tmp_path: Path) -> None:
    """Beyond the bound a pull is refused, but requests that do not wait are executed."""
    count = 20_000

    async def main() -> None:
        async with guarded_node(tmp_path, admin=None) as guarded:
            guarded.node.gates.memory.client_bytes_max = 4 * 1024 * 1024
            reader, writer = await asyncio.open_connection("127.0.0.1", guarded.rpc.port)
            requests = [request(number, "pull", "never") for number in range(count)]
            writer.write(b"".join([*requests, request(count, "push", "other", "x")]))
            unpacker, refused = msgpack.Unpacker(raw=True), 0
            while True:
                for _type, msgid, error, result in unpacker:
                    if msgid == count:
                        assert (error, result) == (None, b"ok")
                        assert 1_000 < refused < count - 1_000
                        writer.close()
                        return
                    assert error.startswith(b"overloaded: pulls that wait fill")
                    refused += 1
                unpacker.feed(await reader.read(65536))

    asyncio.run(main())


def test_a_push_does_not_overtake_an_earlier_request_of_its_connection(node: NodeProcess, queue_name: str) -> None:
    """Pushes of a queue share a command of the log, but not across a request in between that depends on their order."""
    other = queue_name + "-bound"
    with Rpc(node.rpc) as rpc:
        rpc.call("bind", other, queue_name)
        assert errors(rpc.many([("push", queue_name, "1"), ("push", other, "2"), ("push", queue_name, "3")])) == set()
        assert pull_all(rpc, queue_name) == [b"1", b"2", b"3"]

        pushes = [("push", queue_name, "1"), ("push", queue_name, "2", {"wait": 9}), ("push", queue_name, "3")]
        assert errors(rpc.many(pushes)) == set()
        assert pull_all(rpc, queue_name) == [b"1", b"2", b"3"]

        limit = ("update_props", queue_name, {"max_items": 1})
        first, limited, second = rpc.many([("push", queue_name, "1"), limit, ("push", queue_name, "2")])
        assert (first.error, limited.error) == (None, None)
        assert second.error.startswith(b"full")

        replies = rpc.many([("pull", queue_name, 0), ("push", queue_name, "3"), ("pull", queue_name, 0)])
        assert [reply.result[b"content"] for reply in (replies[0], replies[2])] == [b"1", b"3"]
        done = ("done", queue_name, replies[0].result[b"id"])
        once, _pushed, again = rpc.many([done, ("push", queue_name, "4"), done])
        assert (once.result, again.error) == (b"ok", b"throw:not_found")


def test_pushes_of_many_connections_and_queues_are_each_answered_once(node: NodeProcess, queue_name: str) -> None:
    with open_rpc(node.rpc, 20) as rpcs:
        for number in range(50):
            for place, rpc in enumerate(rpcs):
                for queue in range(3):
                    rpc.ask("push", f"{queue_name}-{queue}", f"{place:02}-{number:02}")
        for rpc in rpcs:
            answers = [rpc.read() for _ in range(150)]
            assert errors(answers) == set()
            assert len({answer.msgid for answer in answers}) == 150
        for queue in range(3):
            pulled = pull_all(rpcs[0], f"{queue_name}-{queue}")
            assert len(pulled) == 1000
            for place in range(20):
                own = [content for content in pulled if content.startswith(b"%02d-" % place)]
                assert own == [b"%02d-%02d" % (place, number) for number in range(50)]
