"""When a connection may repeat a push: over HTTP, and over MessagePack-RPC through a front end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from lmqcluster.core import Role
from lmqcluster.node.access.access import Principal
from lmqcluster.ports.front_ends.relayed_transport import RelayedTransport
from lmqcluster.ports.front_ends.repeats import Repeats as Groups
from lmqcluster.protocols.http.lmq.errors import on_error
from lmqcluster.protocols.http.server.repeated_requests import RepeatedRequests
from lmqcluster.protocols.http.server.replies.reply import RepeatablePush, Reply
from lmqcluster.protocols.msgpack_rpc.connection.repeats import RepeatedCalls
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import pack
from tests.unit.ports.recorder import Recorder

HEAD = b"POST /messages/q HTTP/1.1\r\nHost: x\r\nX-Id: %b\r\nContent-Length: %d\r\n\r\n"
PUSH = RepeatablePush(b"q", None, lambda _flag: Reply(200), on_error)
WRITER = Principal("writer", Role.WRITE, b".*", b"owner")


class Client:
    """The part of a connection over HTTP that an offer uses."""

    def __init__(self, transport: object = None) -> None:
        self.head = self.shape = b""
        self.transport = transport
        self.remembered: list[Any] = []

    def remember(self, repeat: Any, _answer: Any) -> None:
        self.remembered.append(repeat)


class Case:
    """The repeated pushes of a port."""

    def __init__(self) -> None:
        self.pushed: list[tuple[bytes, bytes | None, bytes, bytes]] = []
        self.hooks: tuple[list[bytes], list[bytes]] = ([], [])
        access: Any = SimpleNamespace(anonymous=None, outside=None)
        self.access = access
        service: Any = SimpleNamespace(
            push_plain=self._push_plain, preserved_headers=lambda: self.hooks, sender=None, repeated_answers=None
        )
        self.repeats = RepeatedRequests(service, self.access, lambda *_ended: None)

    def _push_plain(self, queue: bytes, content_type: bytes | None, content: bytes, owner: bytes) -> Any:
        self.pushed.append((queue, content_type, content, owner))
        return "outcome"

    def offer(self, client: Any, *heads: bytes, principal: Principal = WRITER) -> None:
        for head in heads:
            client.head = head
            self.repeats.offer(client, PUSH, principal, "POST /messages/{name}")


def test_the_second_of_two_alike_is_remembered() -> None:
    case, client = Case(), Client()
    case.offer(client, HEAD % (b"a", 5))
    assert client.remembered == []
    case.offer(client, HEAD % (b"a", 117))
    [repeat] = client.remembered
    assert repeat(HEAD % (b"a", 1) + b"x") == "outcome"
    assert repeat(HEAD % (b"b", 1) + b"x") is None
    assert case.pushed == [(b"q", None, b"x", b"owner")]
    assert case.repeats.in_flight == 1


def test_requests_with_other_heads_are_not() -> None:
    case, client = Case(), Client()
    case.offer(client, HEAD % (b"a", 5), HEAD % (b"b", 5), HEAD % (b"c", 5), b"", b"")
    assert client.remembered == []


def test_rights_are_checked_each_time() -> None:
    case, client = Case(), Client()
    principal = Principal("writer", Role.WRITE, b".*")
    case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5), principal=principal)
    [repeat] = client.remembered
    case.access.outside = LmqError("conflict", "outside")
    assert repeat(HEAD % (b"a", 1) + b"x") is None
    case.access.outside = None
    case.hooks = ([b"x-id"], [])
    assert repeat(HEAD % (b"a", 1) + b"x") is None
    case.hooks = ([], [])
    assert repeat(HEAD % (b"a", 1) + b"x") == "outcome"
    principal.revoke()
    assert repeat(HEAD % (b"a", 1) + b"x") is None
    case.offer(client, HEAD % (b"a", 5), principal=principal)
    assert len(client.remembered) == 1


def test_clients_without_tokens_repeat_until_there_are_tokens() -> None:
    case, client = Case(), Client()
    case.access.anonymous = Principal("anonymous", Role.ADMIN, b".*")
    case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5), principal=case.access.anonymous)
    [repeat] = client.remembered
    assert repeat(HEAD % (b"a", 1) + b"x") == "outcome"
    case.access.anonymous = None
    assert repeat(HEAD % (b"a", 1) + b"x") is None


def relayed(channel: Recorder, number: int = 1) -> RelayedTransport:
    return RelayedTransport(channel, number, None, asyncio.Protocol(), Groups(channel), is_tls=False)


def test_a_front_end_gets_the_pattern() -> None:
    async def main() -> list[tuple[int, int, Any]]:
        channel = Recorder()
        case, client = Case(), Client(relayed(channel))
        case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5))
        assert client.remembered == []
        return channel.sent

    [(_operation, number, (group, *pattern))] = asyncio.run(main())
    before, _, after = (HEAD % (b"a", 5)).partition(b"5")
    assert (number, group, pattern) == (1, 1, [before, after])


def push(msgid: int, queue: bytes = b"q") -> bytes:
    return pack([0, msgid, b"push", [queue, b"x"]])


def offers(*reads: tuple[bytes, bytes | None]) -> int:
    """Return how many offers there are: the bytes of each read, and the queue of the last push among them."""

    async def main() -> int:
        channel = Recorder()
        service: Any = SimpleNamespace(sender=None, repeated_answers=None)
        access: Any = SimpleNamespace(outside=None)
        calls = RepeatedCalls(relayed(channel), service, access)
        for data, queue in reads:
            calls.received(data, queue, WRITER, since=0)
        return len(channel.sent)

    return asyncio.run(main())


def test_calls_that_arrive_alone_are_offered() -> None:
    assert offers((push(1), b"q")) == 0
    assert offers((push(1), b"q"), (push(2), b"q")) == 1
    assert offers((push(1), b"q"), (push(2), b"q"), (push(3), b"q")) == 2


def test_calls_with_other_bytes_and_other_queues_are_not() -> None:
    assert offers((push(1), b"q"), (push(2) + push(3), b"q"), (push(4), b"q")) == 0
    assert offers((push(1), b"q"), (push(2) + push(3)[:5], b"q")) == 0
    assert offers((push(1), b"q"), (push(2)[5:] + push(3), b"q")) == 0
    assert offers((push(1), b"q"), (push(2, b"r"), b"r"), (push(3), b"q")) == 0
    assert offers((push(1), b"q"), (b"ping", None), (push(3), b"q")) == 0
