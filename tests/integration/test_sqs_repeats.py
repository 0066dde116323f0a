"""Requests that repeat the head of an earlier one of their connection: the port answers them no differently."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.core.log.commands import DeleteToken
from lmqcluster.node.access.sqs_keys import secret_access_key, sqs_key
from lmqcluster.node.access.tokens import create_token
from lmqcluster.node.queues.sending.push_items import PushItem
from lmqcluster.protocols.http.server.repeat_groups import _GroupedRepeat
from lmqcluster.protocols.sqs import SqsPort
from lmqcluster.wire.address import Address

from .guarded_node import guarded_node
from .programs import DEADLINE_S
from .sqs_signed import signed

URL = "http://localhost/000000000000/shop"
FRONT_ENDS = 0
"""Set by the fixture `front_ends`."""


class Client:
    """A connection to a port, and how many of its requests were handled in full."""

    def __init__(self, port: SqsPort, node: Any, key: tuple[str, str], full: list[str]) -> None:
        self.node = node
        self.full = full
        self._key = key
        self._host = f"127.0.0.1:{port.port}"
        self._port = port.port
        self._sent = 0

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)

    def request(self, action: str = "SendMessage", *, invocation: str = "", **given: Any) -> bytes:
        """Return the bytes of a request."""
        self._sent += 1
        headers = {"amz-sdk-invocation-id": invocation or f"{self._sent:036d}", "amz-sdk-request": "attempt=1"}
        body = json.dumps({"QueueUrl": URL, **given}).encode()
        return signed(self._key, self._host, body, time.time(), headers, action)

    async def ask(self, data: bytes) -> tuple[int, Any]:
        """Return the status and the value of the answer to a request."""
        self.writer.write(data)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert b"\r\nx-amzn-RequestId: " in head
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await self.reader.readexactly(length)
        return int(head.split()[1]), json.loads(content) if content else None

    async def send(self, body: str, **given: Any) -> Any:
        """Send a message; return the answer, which must be right."""
        status, answer = await self.ask(self.request(MessageBody=body, **given))
        assert (status, answer["MD5OfMessageBody"]) == (200, hashlib.md5(body.encode()).hexdigest())
        return answer

    def stored(self) -> int:
        """Return the number of messages in the queue."""
        return len(self.node.service.sender.state().queues[b"shop"])


@pytest.fixture(autouse=True, params=[0, 1], ids=["one process", "front end"])
def front_ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run each test with and without a front end; return the number."""
    monkeypatch.setattr(sys.modules[__name__], "FRONT_ENDS", request.param)
    return int(request.param)


@asynccontextmanager
async def connected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """Yield a connection with the key of a token."""
    full: list[str] = []
    serve = SqsPort.serve

    async def counted(self: SqsPort, request: Any) -> Any:
        reply = await serve(self, request)
        full.append(request.route)
        return reply

    monkeypatch.setattr(SqsPort, "serve", counted)
    options: dict[str, Any] = {"sqs": Address("127.0.0.1", 2), "front_ends": FRONT_ENDS}
    async with asyncio.timeout(DEADLINE_S), guarded_node(folder, **options) as guarded:
        port = SqsPort(guarded.node, "127.0.0.1", 0)
        await port.start()
        if guarded.node.front_ends is not None:
            guarded.node.front_ends.start()
        secret = await create_token(guarded.node, "shop", "admin", ".*", None, sqs=True)
        client = Client(port, guarded.node, ("shop", secret_access_key(sqs_key(secret.encode()))), full)
        await client.connect()
        try:
            await client.ask(client.request("CreateQueue", QueueName="shop"))
            await client.send("first")
            full.clear()
            yield client
        finally:
            client.writer.close()
            port.retire()
            await port.stop(1.0)
            if guarded.node.front_ends is not None:
                await guarded.node.front_ends.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; `connected` limits the time."""
    while not condition():  # noqa: ASYNC110 - there is no event for these
        await asyncio.sleep(0.01)


def on_a_connection(folder: Path, monkeypatch: pytest.MonkeyPatch, main: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connected(folder, monkeypatch) as client:
            await main(client)

    asyncio.run(run())


def test_repeated_sends_are_stored_and_answered_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        bodies = ["x", 'caf\u00e9 \U0001f600 "\\\n', "y" * 5_000, "z"]
        answers = [await client.send(body) for body in bodies]
        assert client.full == []
        _status, answer = await client.ask(client.request("ReceiveMessage", MaxNumberOfMessages=10))
        found = [(one["MessageId"], one["Body"]) for one in answer["Messages"]]
        assert found[1:] == [(answer["MessageId"], body) for answer, body in zip(answers, bodies, strict=True)]
        assert client.full == ["ReceiveMessage"]
        await client.send("after another action")
        assert client.full == ["ReceiveMessage"]

    on_a_connection(tmp_path, monkeypatch, main)


def test_a_front_end_decodes_sends_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, front_ends: int
) -> None:
    begun: list[bytes] = []
    start = _GroupedRepeat.start
    monkeypatch.setattr(_GroupedRepeat, "start", lambda self, data: [start(self, data), begun.append(data)][0])

    async def main(client: Client) -> None:
        names = [(await client.send(f"m{number}"))["MessageId"] for number in range(30)]
        # The front end shows the node a request in full each second.
        assert len(begun) < 30 if front_ends else len(begun) == 30
        assert client.full == []
        assert (client.stored(), len(set(names))) == (31, 30)

    on_a_connection(tmp_path, monkeypatch, main)


def test_a_send_that_an_sdk_repeats_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        data = client.request(MessageBody="x", invocation="i" * 36)
        first = await client.ask(data)
        assert await client.ask(data) == first
        await client.send("y")
        assert (client.full, client.stored()) == ([], 3)

    on_a_connection(tmp_path, monkeypatch, main)


def test_repeated_sends_have_all_that_messages_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        attributes = {"a": {"DataType": "Number.int", "StringValue": "1"}}
        answer = await client.send("x", MessageAttributes=attributes, MessageGroupId="g")
        await client.send("late", DelaySeconds=900)
        assert client.full == []
        _status, found = await client.ask(
            client.request(
                "ReceiveMessage", MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
            )
        )
        (one,) = [one for one in found["Messages"] if one["MessageId"] == answer["MessageId"]]
        assert (one["MessageAttributes"], one["Attributes"]["MessageGroupId"]) == (attributes, "g")
        assert one["MD5OfMessageAttributes"] == answer["MD5OfMessageAttributes"]
        assert [one["Body"] for one in found["Messages"]] == ["first", "x"]

    on_a_connection(tmp_path, monkeypatch, main)


def test_repeated_batches_are_answered_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        async def batch(bodies: list[Any], invocation: str = "") -> Any:
            entries = [{"Id": f"e{number}", "MessageBody": body} for number, body in enumerate(bodies)]
            return await client.ask(client.request("SendMessageBatch", invocation=invocation, Entries=entries))

        right, wrong = ["x", "caf\u00e9"], ["\x00", "", "\ufffe"]
        in_full = await batch(right)
        assert client.full == ["SendMessageBatch"]
        repeated = await batch(right, "i" * 36)
        assert await batch(right, "i" * 36) == repeated
        mixed, failed = await batch(right + wrong), await batch(wrong)
        assert (client.full, client.stored()) == (["SendMessageBatch"], 7)
        for status, answer in (in_full, repeated, mixed):
            assert status == 200
            digests = [hashlib.md5(body.encode()).hexdigest() for body in right]
            assert [one["MD5OfMessageBody"] for one in answer["Successful"]] == digests
        codes = ["InvalidMessageContents", "MissingParameter", "InvalidMessageContents"]
        for answer, first in ((mixed[1], len(right)), (failed[1], 0)):
            shown = [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]]
            assert shown == [(f"e{place}", code, True) for place, code in enumerate(codes, first)]
        assert "Successful" not in failed[1]
        status, answer = await batch(["x"] * 11)
        assert (status, answer["__type"]) == (400, "com.amazonaws.sqs#TooManyEntriesInBatchRequest")
        assert (client.full, client.stored()) == (["SendMessageBatch"], 7)

    on_a_connection(tmp_path, monkeypatch, main)


def test_repeated_sends_to_a_fifo_queue_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        url, attributes = f"{URL}.fifo", {"FifoQueue": "true"}
        await client.ask(client.request("CreateQueue", QueueName="shop.fifo", Attributes=attributes))
        client.full.clear()

        async def send(number: int) -> Any:
            given = {"MessageGroupId": "g", "MessageDeduplicationId": f"{number}"}
            return await client.send("x", QueueUrl=url, **given)

        first, again, second = [await send(number) for number in (1, 1, 2)]
        assert (client.full, again) == ([], first)
        assert first["SequenceNumber"] < second["SequenceNumber"]
        assert len(client.node.service.sender.state().queues[b"shop.fifo"]) == 2

    on_a_connection(tmp_path, monkeypatch, main)


def test_clients_that_trace_each_send_are_served_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        for number in range(2):
            data = client.request(MessageBody="x").replace(
                b"\r\n\r\n", b"\r\nX-Amzn-Trace-Id: Root=%d\r\n\r\n" % number, 1
            )
            assert (await client.ask(data))[0] == 200
        assert client.full == ["SendMessage"] * 2

    on_a_connection(tmp_path, monkeypatch, main)


def test_repeated_receives_and_deletes_are_answered_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(client: Client) -> None:
        for number in range(8):
            await client.send(f"{number}")
        bodies: list[str] = []
        for _ in range(5):
            _status, found = await client.ask(client.request("ReceiveMessage", MaxNumberOfMessages=2))
            bodies += [one["Body"] for one in found.get("Messages", ())]
            entries = [
                {"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in found.get("Messages", ())
            ]
            wrong = {"Id": "wrong", "ReceiptHandle": "none"}
            _status, deleted = await client.ask(client.request("DeleteMessageBatch", Entries=[*entries, wrong]))
            assert deleted["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"
            assert [one["Id"] for one in deleted.get("Successful", ())] == [one["Id"] for one in entries]
        assert sorted(bodies) == sorted(["first", *map(str, range(8))])
        assert client.full == ["ReceiveMessage", "DeleteMessageBatch"]
        assert client.stored() == 0

    on_a_connection(tmp_path, monkeypatch, main)


def test_a_receive_that_an_sdk_repeats_gets_the_same_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        await client.send("second")
        in_full = client.request("ReceiveMessage")
        first = await client.ask(in_full)
        assert await client.ask(in_full) == first
        repeated = client.request("ReceiveMessage", invocation="i" * 36)
        second = await client.ask(repeated)
        assert second[1]["Messages"][0]["Body"] == "second"
        again = await client.ask(repeated)
        assert again[1]["Messages"][0]["Body"] == "second"
        assert client.full == ["ReceiveMessage"]

    on_a_connection(tmp_path, monkeypatch, main)


def test_a_repeated_receive_waits_until_there_is_a_message_or_its_client_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(client: Client) -> None:
        waiting = partial(client.node.service.pulls.waiting_for, b"shop")
        await client.ask(client.request("ReceiveMessage"))
        for _ in range(2):
            answer = asyncio.create_task(client.ask(client.request("ReceiveMessage", WaitTimeSeconds=20)))
            await until(lambda: waiting() == 1)
            await client.node.service.push(b"shop", [PushItem(b"late")])
            _status, found = await answer
            assert [one["Body"] for one in found["Messages"]] == ["late"]
        assert client.full == ["ReceiveMessage"]
        client.writer.write(client.request("ReceiveMessage", WaitTimeSeconds=20))
        await until(lambda: waiting() == 1)
        client.writer.transport.abort()
        await until(lambda: not waiting())

    on_a_connection(tmp_path, monkeypatch, main)


def test_a_client_reads_the_long_answer_to_a_repeated_receive_when_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(client: Client) -> None:
        await client.ask(client.request("ReceiveMessage"))
        bodies = [f"{number}" * 500_000 for number in range(10)]
        await client.node.service.push(b"shop", [PushItem(body.encode()) for body in bodies])
        memory = client.node.gates.sqs.memory
        for start in (0, 5):
            client.writer.write(client.request("ReceiveMessage", MaxNumberOfMessages=5))
            await until(lambda: memory.clients_bytes > 0)
            _status, found = await client.ask(b"")
            assert [one["Body"] for one in found["Messages"]] == bodies[start : start + 5]
        assert client.full == ["ReceiveMessage"]
        await client.send("and the connection goes on")
        assert not memory.clients_bytes

    on_a_connection(tmp_path, monkeypatch, main)


def test_what_would_be_refused_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        data = client.request(MessageBody="right")
        for wrong, code in (
            (data.replace(b"right", b"wrong"), "InvalidSignatureException"),
            (client.request(MessageBody="\x00"), "InvalidMessageContents"),
            (client.request(MessageBody=""), "MissingRequiredParameterException"),
            (client.request(MessageBody=7), "SerializationException"),
            (client.request(QueueUrl="none", MessageBody="x"), "QueueDoesNotExist"),
        ):
            status, answer = await client.ask(wrong)
            assert (status >= 400, answer["__type"].partition("#")[2]) == (True, code)
            await client.send("and the connection goes on")
        assert client.full == ["unknown"]
        assert client.stored() == 6

    on_a_connection(tmp_path, monkeypatch, main)


def test_a_full_queue_refuses_repeated_sends_and_entries_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(client: Client) -> None:
        await client.node.service.set_properties(b"shop", [("max_items", 3)])
        await client.send("x")
        entries = [{"Id": f"e{number}", "MessageBody": "x"} for number in range(3)]
        _status, answer = await client.ask(client.request("SendMessageBatch", Entries=entries))
        assert [one["Id"] for one in answer["Successful"]] == ["e0"]
        assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [("e1", "OverLimit"), ("e2", "OverLimit")]
        assert (client.full, client.stored()) == (["SendMessageBatch"], 3)
        await client.node.service.set_properties(b"shop", [("max_items", 5)])
        _status, again = await client.ask(client.request("SendMessageBatch", Entries=entries))
        assert [one["Id"] for one in again["Successful"]] == ["e0", "e1"]
        assert [(one["Id"], one["Code"], one["SenderFault"]) for one in again["Failed"]] == [("e2", "OverLimit", True)]
        assert (client.full, client.stored()) == (["SendMessageBatch"], 5)
        await client.node.service.set_properties(b"shop", [("max_items", 6)])
        await client.send("x")
        client.full.clear()
        status, answer = await client.ask(client.request(MessageBody="x"))
        assert (status, answer["__type"]) == (403, "com.amazonaws.sqs#OverLimit")
        assert (client.full, client.stored()) == ([], 6)

    on_a_connection(tmp_path, monkeypatch, main)


def test_the_end_of_a_token_ends_its_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        await client.send("x")
        await client.node.service.sender.propose(DeleteToken(b"shop", without_admin=True), 64)
        status, answer = await client.ask(client.request(MessageBody="x"))
        assert (status, answer["__type"]) == (403, "com.amazonaws.sqs#UnrecognizedClientException")
        assert client.stored() == 2

    on_a_connection(tmp_path, monkeypatch, main)


def test_the_end_of_a_queue_ends_its_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(client: Client) -> None:
        await client.send("x")
        await client.node.service.delete(b"shop")
        status, answer = await client.ask(client.request(MessageBody="x"))
        assert (status, answer["__type"]) == (400, "com.amazonaws.sqs#QueueDoesNotExist")

    on_a_connection(tmp_path, monkeypatch, main)
