"""When a connection may repeat a push: over HTTP, and over MessagePack-RPC through a front end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from lmqcluster.core import Role
from lmqcluster.core.log.commands import Push
from lmqcluster.node.access.access import Principal
from lmqcluster.node.commit.proposer import PendingCommand
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
        self.answered = 0
        self.remembered: list[Any] = []
        self.in_full = 0

    def remember(self, repeat: Any, _operation: str) -> None:
        self.remembered.append(repeat)

    def repeat_in_full(self) -> None:
        self.in_full += 1


class Case:
    """The repeated pushes of a port, whose commands are never sent."""

    def __init__(self) -> None:
        self.pushed: list[PendingCommand] = []
        self.hooks: tuple[list[bytes], list[bytes]] = ([], [])
        access: Any = SimpleNamespace(anonymous=None, outside=None)
        self.access = access
        proposer = SimpleNamespace(
            open_command=lambda *_args: None, add=lambda pending, _size: self.pushed.append(pending)
        )
        sender = SimpleNamespace(
            proposer=proposer, check_name=lambda _queue, _owner: None, check_push=lambda _size: None
        )
        service: Any = SimpleNamespace(preserved_headers=lambda: self.hooks, sender=sender, repeated_answers=None)
        self.repeats = RepeatedRequests(service, self.access, lambda *_ended: None)

    def offer(self, client: Any, *heads: bytes, principal: Principal = WRITER) -> None:
        for head in heads:
            client.head = head
            self.repeats.offer(client, PUSH, principal, "POST /messages/{name}")


async def is_begun(client: Client, head: bytes) -> bool:
    """Return whether the remembered request of a client begins with this head."""
    in_full = client.in_full
    if not client.remembered[-1].start(head + b"x"):
        return False
    await asyncio.sleep(0)
    return client.in_full == in_full


def test_the_second_of_two_alike_is_remembered() -> None:
    async def main() -> None:
        case, client = Case(), Client()
        case.offer(client, HEAD % (b"a", 5))
        assert client.remembered == []
        case.offer(client, HEAD % (b"a", 117))
        assert len(client.remembered) == 1
        assert await is_begun(client, HEAD % (b"a", 1))
        assert not client.remembered[0].start(HEAD % (b"b", 1) + b"x")
        [pending] = case.pushed
        command = pending.command
        assert isinstance(command, Push)
        assert (command.queue, command.content_type, command.contents) == (b"q", None, [b"x"])
        assert case.repeats.in_flight == 1

    asyncio.run(main())


def test_requests_of_all_connections_share_a_command() -> None:
    async def main() -> None:
        case, clients = Case(), [Client() for _ in range(3)]
        for client in clients:
            case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5))
            assert client.remembered[0].start(HEAD % (b"a", 1) + b"x")
        await asyncio.sleep(0)
        [pending] = case.pushed
        assert isinstance(pending.command, Push)
        assert pending.command.contents == [b"x"] * 3
        assert [connection for _batch, connection in pending.requests] == clients

    asyncio.run(main())


def test_requests_with_other_heads_are_not() -> None:
    case, client = Case(), Client()
    case.offer(client, HEAD % (b"a", 5), HEAD % (b"b", 5), HEAD % (b"c", 5), b"", b"")
    assert client.remembered == []


def test_rights_are_checked_each_time() -> None:
    async def main() -> None:
        case, client = Case(), Client()
        principal = Principal("writer", Role.WRITE, b".*")
        case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5), principal=principal)
        case.access.outside = LmqError("conflict", "outside")
        assert not await is_begun(client, HEAD % (b"a", 1))
        case.access.outside = None
        case.hooks = ([b"x-id"], [])
        assert not await is_begun(client, HEAD % (b"a", 1))
        case.hooks = ([], [])
        assert await is_begun(client, HEAD % (b"a", 1))
        principal.revoke()
        assert not await is_begun(client, HEAD % (b"a", 1))
        case.offer(client, HEAD % (b"a", 5), principal=principal)
        assert len(client.remembered) == 1

    asyncio.run(main())


def test_clients_without_tokens_repeat_until_there_are_tokens() -> None:
    async def main() -> None:
        case, client = Case(), Client()
        case.access.anonymous = Principal("anonymous", Role.ADMIN, b".*")
        case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5), principal=case.access.anonymous)
        assert await is_begun(client, HEAD % (b"a", 1))
        case.access.anonymous = None
        assert not await is_begun(client, HEAD % (b"a", 1))

    asyncio.run(main())


def relayed(channel: Recorder, number: int = 1) -> RelayedTransport:
    return RelayedTransport(channel, number, None, asyncio.Protocol(), Groups(channel), is_tls=False)


def test_a_front_end_gets_the_pattern_with_a_repetition() -> None:
    async def main() -> list[tuple[int, int, Any]]:
        channel = Recorder()
        case, client = Case(), Client(relayed(channel))
        case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5))
        assert channel.sent == []
        assert await is_begun(client, HEAD % (b"a", 1))
        return channel.sent

    [(_operation, number, (group, *pattern))] = asyncio.run(main())
    before, _, after = (HEAD % (b"a", 5)).partition(b"5")
    assert (number, group, pattern) == (1, 1, [before, after])


def test_a_front_end_gets_no_pattern_of_requests_between_others() -> None:
    async def main() -> list[tuple[int, int, Any]]:
        channel = Recorder()
        case, client = Case(), Client(relayed(channel))
        case.offer(client, HEAD % (b"a", 5), HEAD % (b"a", 5))
        for _ in range(3):
            client.answered += 1
            assert await is_begun(client, HEAD % (b"a", 1))
            client.answered += 1
        return channel.sent

    assert asyncio.run(main()) == []


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
