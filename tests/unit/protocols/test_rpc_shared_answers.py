"""Answers to requests of several connections that share a command."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import PushFlag, Refusal
from lmqcluster.core.log.commands import Ack, Push
from lmqcluster.node.commit.proposer import PendingCommand
from lmqcluster.protocols.msgpack_rpc.connection.shared_answers import SharedAnswers
from lmqcluster.protocols.msgpack_rpc.values import replies
from lmqcluster.wire.errors import LmqError

OK = replies.OK


class _Client:
    """A connection that keeps its answers; a broken one raises instead."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken
        self.answers: list[tuple[Any, Any]] = []
        self.refusals = 0

    def answer_ok(self, msgids: list[Any]) -> None:
        assert msgids
        for msgid in msgids:
            self.succeed(msgid, OK)

    def succeed(self, msgid: Any, result: bytes) -> None:
        if self.is_broken:
            raise RuntimeError("a bug")
        self.answers.append((msgid, result))

    def fail(self, msgid: Any, error_text: str) -> None:
        if self.is_broken:
            raise RuntimeError("a bug")
        self.answers.append((msgid, error_text))

    def push_refused(self, error: LmqError) -> None:
        assert error.code == "no_leader"
        self.refusals += 1


def pushes(sink: SharedAnswers, *requests: tuple[_Client, Any]) -> PendingCommand:
    return PendingCommand(Push(b"q", None, [b"x"] * len(requests)), list(requests), sink)


def acks(sink: SharedAnswers, *requests: tuple[_Client, Any]) -> PendingCommand:
    return PendingCommand(Ack(b"q", [1] * len(requests)), list(requests), sink)


def test_every_request_is_answered_once_on_its_connection() -> None:
    sink, one, two = SharedAnswers(), _Client(), _Client()
    pending = pushes(sink, (one, 1), (one, 2), (two, 1), (one, 3))
    sink.completed(pending, [0, 0, 0, 0])
    sink.completed(pending, [0, 0, 0, 0])
    sink.failed(pending, LmqError("no_leader", "late"))
    assert one.answers == [(1, OK), (2, OK), (3, OK)]
    assert two.answers == [(1, OK)]
    assert one.refusals == 0


def test_each_request_gets_its_result() -> None:
    sink, one, two = SharedAnswers(), _Client(), _Client()
    sink.completed(pushes(sink, (one, 1), (two, 2), (one, 3)), [1, Refusal(PushFlag.FULL, "no room"), 0])
    assert [(msgid, text) for msgid, text in one.answers] == [(1, replies.FLAG_TEXTS[1]), (3, OK)]
    assert two.answers == [(2, "full: no room")]
    sink.completed(acks(sink, (one, 4), (two, 5)), [True, False])
    sink.completed(acks(sink, (one, 6), (two, 7)), None)
    assert one.answers[2:] == [(4, OK), (6, "throw:queue_not_found")]
    assert two.answers[1:] == [(5, "throw:not_found"), (7, "throw:queue_not_found")]


def test_a_refusal_reaches_all_and_holds_back_only_pushes() -> None:
    sink, one, two = SharedAnswers(), _Client(), _Client()
    error = LmqError("no_leader", "there is no leader")
    sink.failed(pushes(sink, (one, 1), (two, 2)), error)
    sink.failed(acks(sink, (one, 3)), error)
    assert [one.answers, two.answers] == [[(1, error.rpc_text()), (3, error.rpc_text())], [(2, error.rpc_text())]]
    assert (one.refusals, two.refusals) == (1, 1)


@pytest.mark.parametrize("result", [[0, 0, 0], [0, 1, 0], None])
def test_an_error_in_the_reply_to_one_client_does_not_stop_the_others(result: list[int] | None) -> None:
    sink, one, broken, two = SharedAnswers(), _Client(), _Client(is_broken=True), _Client()
    pending = pushes(sink, (one, 1), (broken, 2), (two, 3))
    if result is None:
        sink.failed(pending, LmqError("no_leader", "there is no leader"))
    else:
        sink.completed(pending, result)
    assert [msgid for msgid, _ in one.answers + two.answers] == [1, 3]
