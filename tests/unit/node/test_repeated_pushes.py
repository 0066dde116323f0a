"""Groups of repeated pushes: order, shared commands, and the outcome of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgpack

from lmqcluster.core import PushFlag, Refusal
from lmqcluster.core.log.commands import Bind, Push
from lmqcluster.node.commit.proposer import PendingCommand
from lmqcluster.node.queues.pushes.repeated import RepeatedAnswers, RepeatedPushes
from lmqcluster.wire.errors import LmqError

from .command_bench import Bench, Recorder

Scenario = Callable[["Case"], Awaitable[None]]


class Case:
    """Groups of one queue, with all that they answer."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.answers = RepeatedAnswers()
        self.answered: list[tuple[list[int], bytes, bytes]] = []
        self.ended: list[tuple[int, int | str]] = []
        self.is_allowed = True
        self.error: LmqError | None = None

    def group(self, queue: bytes = b"q", content_type: bytes | None = None) -> RepeatedPushes:
        sender: Any = SimpleNamespace(
            proposer=self.bench.proposer, check_name=lambda _queue, _owner: None, check_push=self._check_push
        )
        return RepeatedPushes(
            sender,
            self.answers,
            (queue, content_type, b""),
            lambda connections, before, after: self.answered.append((connections, before, after)),
            is_allowed=lambda: self.is_allowed,
            render=lambda outcome: (str(outcome if isinstance(outcome, int) else outcome.code).encode(), b"."),
            ended=lambda count, outcome, _seconds: self.ended.append(
                (count, outcome if isinstance(outcome, int) else outcome.code)
            ),
        )

    def _check_push(self, _size_bytes: int) -> None:
        if self.error is not None:
            raise self.error

    def pushes(self, position: int) -> list[list[bytes]]:
        """Return the bodies of each push of a batch."""
        commands = msgpack.unpackb(self.bench.sent[position][1])[3]
        return [command[3] for command in commands if command[0] == Push.op]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        case = Case()
        await scenario(case)
        case.bench.proposer.close(LmqError("shutting_down", "the test is over"))

    asyncio.run(main())


def test_groups_share_a_command_and_get_their_own_answers() -> None:
    async def scenario(case: Case) -> None:
        one, two = case.group(), case.group()
        assert one.start([1, 2], [b"a", b"b"])
        assert two.start([1], [b"c"])
        assert one.start([3], [b"d"])
        await case.bench.turn()
        assert case.pushes(0) == [[b"a", b"b", b"c", b"d"]]
        case.bench.apply(0)
        assert case.answered == [([1, 2], b"0", b"."), ([1], b"0", b"."), ([3], b"0", b".")]
        assert case.ended == [(2, 0), (1, 0), (1, 0)]

    run(scenario)


def test_a_push_does_not_join_an_earlier_command_than_its_client_is_in() -> None:
    async def scenario(case: Case) -> None:
        one, two = case.group(), case.group()
        assert one.start([1], [b"a"])
        other = PendingCommand(Bind(b"q", b"r"), [None], Recorder())
        case.bench.proposer.add(other, 64)
        two.since = other.number
        assert two.start([2], [b"b"])
        await case.bench.turn()
        assert case.pushes(0) == [[b"a"], [b"b"]]

    run(scenario)


def test_other_content_types_are_other_commands() -> None:
    async def scenario(case: Case) -> None:
        assert case.group().start([1], [b"a"])
        assert case.group(content_type=b"text/plain").start([2], [b"b"])
        await case.bench.turn()
        assert case.pushes(0) == [[b"a"], [b"b"]]

    run(scenario)


def test_refusals_are_answered_one_by_one() -> None:
    async def scenario(case: Case) -> None:
        assert case.group().start([1, 2, 3, 4], [b"a", b"b", b"c", b"d"])
        await case.bench.turn()
        pending, full = case.bench.proposer._inflight[0].pending_commands[0], Refusal(PushFlag.FULL, "no room")
        case.answers.completed(pending, [0, full, 0, full])
        assert sorted(case.answered) == [([1, 3], b"0", b"."), ([2, 4], b"full", b".")]
        assert sorted(case.ended, key=str) == [(2, "full"), (2, 0)]

    run(scenario)


def test_an_error_is_the_answer_to_all() -> None:
    async def scenario(case: Case) -> None:
        assert case.group().start([1, 2], [b"a", b"b"])
        case.bench.proposer.close(LmqError("shutting_down", "now"))
        assert case.answered == [([1, 2], b"shutting_down", b".")]

    run(scenario)


def test_what_cannot_be_sent_is_handled_in_full() -> None:
    async def scenario(case: Case) -> None:
        group = case.group()
        case.is_allowed = False
        assert not group.start([1], [b"a"])
        case.is_allowed, case.error = True, LmqError("too_large", "the limit is 0")
        assert not group.start([1], [b"a"])
        case.error = None
        case.bench.proposer.retire(LmqError("shutting_down", "now"))
        assert not group.start([1], [b"a"])
        await case.bench.turn()
        assert (case.bench.sent, case.answered, case.ended) == ([], [], [])

    run(scenario)
