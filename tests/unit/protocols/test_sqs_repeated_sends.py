"""Answers to repeated sends that were stored together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lmqcluster.core import PushFlag, Refusal
from lmqcluster.protocols.sqs.repeated_sends import RepeatedSends, SendsObserver
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.repeated_sends import Sent

DIGEST = b"d" * 32


def message(name: bytes = b"", content: bytes = b"x") -> Sent:
    return name, DIGEST, None, content


def answers(
    bodies: list[list[Sent]],
    outcome: Sequence[tuple[int, int]] | Exception,
    *,
    prefix: str | LmqError = "id-",
    is_allowed: bool = True,
) -> list[tuple[int, Any]]:
    """Return the status and the body of the answer to each request, none if they are handled in full."""
    found: dict[int, bytes] = {}
    codes: list[tuple[str, int]] = []

    def message_prefix() -> str:
        if isinstance(prefix, LmqError):
            raise prefix
        return prefix

    async def main() -> None:
        stored: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        facts = SimpleNamespace(is_fifo=False, message_bytes=lambda most: most)
        service = SimpleNamespace(
            sender=SimpleNamespace(check_push=lambda _size: None),
            attempts=SimpleNamespace(push_rows=lambda *_arguments: stored),
        )
        tools: Any = SimpleNamespace(
            known=lambda _queue: facts,
            message_bytes_max=100,
            service=service,
            receipts=SimpleNamespace(message_prefix=message_prefix),
        )
        observer = SendsObserver(lambda _count: None, lambda code, _seconds, count: codes.append((code, count)))

        def answer(connections: list[int], before: bytes, after: bytes) -> None:
            (connection,) = connections
            found[connection] = before + after

        group = RepeatedSends(tools, b"q", b"", lambda: is_allowed, observer, answer)
        if not group.start(list(range(len(bodies))), bodies):
            return
        if isinstance(outcome, Exception):
            stored.set_exception(outcome)
        else:
            stored.set_result(list(outcome))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert sum(count for _code, count in codes) == len(found)
    heads = [found[number].partition(b"\r\n\r\n") for number in sorted(found)]
    return [(int(head.split()[1]), json.loads(body)) for head, _end, body in heads]


def sent(number: int) -> dict[str, str]:
    return {"MessageId": f"id-{number:012x}", "MD5OfMessageBody": DIGEST.decode()}


def test_each_request_gets_its_own_messages() -> None:
    bodies = [[message()], [message(b"a"), message(b"b")], [message()]]
    assert answers(bodies, [(0, 10), (0, 11), (0, 12), (0, 255)]) == [
        (200, sent(10)),
        (200, {"Successful": [{"Id": "a", **sent(11)}, {"Id": "b", **sent(12)}]}),
        (200, sent(255)),
    ]


def test_a_full_queue_refuses_messages_one_by_one() -> None:
    full = Refusal(PushFlag.FULL, "the queue is full")
    found = answers(
        [[message()], [message(b"a"), message(b"b")], [message(b"c")]], [(full, 0), (0, 7), (full, 0), (full, 0)]
    )
    (status, refused), (_status, mixed), (_other, failed) = found
    assert (status, refused["__type"]) == (403, "com.amazonaws.sqs#OverLimit")
    assert mixed["Successful"] == [{"Id": "a", **sent(7)}]
    assert [(one["Id"], one["Code"]) for one in mixed["Failed"]] == [("b", "OverLimit")]
    assert list(failed) == ["Failed"]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(LmqError("unknown_outcome", "late"), 500), (LmqError("no_leader", "none"), 503), (RuntimeError("a bug"), 500)],
)
def test_an_error_answers_all_requests(outcome: Exception, status: int) -> None:
    assert [code for code, _body in answers([[message()], [message(b"a")]], outcome)] == [status, status]


def test_clients_of_a_node_that_has_left_its_cluster_get_an_answer() -> None:
    found = answers([[message()], [message(b"a")]], [(0, 1), (0, 2)], prefix=LmqError("no_leader", "left"))
    assert [code for code, _body in found] == [503, 503]


def test_requests_are_handled_in_full_once_rights_or_sizes_have_changed() -> None:
    assert answers([[message()]], [(0, 1)], is_allowed=False) == []
    assert answers([[message()], [message(content=b"x" * 101)]], [(0, 1), (0, 2)]) == []
