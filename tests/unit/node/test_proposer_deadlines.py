"""Every request is answered once and within its deadline, whatever happens to the batches that carry it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster.core import Machine
from lmqcluster.core.log.commands import Barrier, Command, Push
from lmqcluster.node.commit import proposer as module
from lmqcluster.node.commit.proposer import PendingCommand, Proposer
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.wire.errors import LmqError

DEADLINE_S = module.UNKNOWN_AFTER_S + 2 * module.SWEEP_S


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """The clock of the proposer."""

    now_s = 1000.0

    @classmethod
    def monotonic(cls) -> float:
        return cls.now_s


class Bench:
    """A proposer on virtual time: it replaces the event loop, the clock and the carrier.

    Attributes:
        sent: every batch that was passed to the carrier.
        answers: by the number of a request, the answer to its client and its time.
    """

    def __init__(self) -> None:
        self.leader = True
        self.sent: list[bytes] = []
        self.answers: dict[int, list[tuple[str, float]]] = {}
        self.asked_s: dict[int, float] = {}
        self._timers: list[tuple[float, int, _Timer, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self.machine = Machine(compile_pattern)
        self._applied = 0
        with mock.patch("asyncio.get_running_loop", return_value=self):
            self.proposer = Proposer(self, b"n1", 7)

    # The event loop and the clock

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> _Timer:
        return self.call_later(0.0, callback, *arguments)

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> _Timer:
        timer = _Timer()
        heapq.heappush(self._timers, (Clock.now_s + delay_s, next(self._count), timer, callback, arguments))
        return timer

    def advance(self, seconds: float) -> None:
        end_s = Clock.now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            Clock.now_s, _, timer, callback, arguments = heapq.heappop(self._timers)
            if not timer.cancelled:
                callback(*arguments)
        Clock.now_s = end_s

    # The carrier

    def submit(self, _sequence: int, batch: bytes) -> bool:
        self.sent.append(batch)
        return self.leader

    def has_leader(self) -> bool:
        return self.leader

    def copies_of(self, command: Command) -> int:
        return 0

    # Clients

    def push(self, producer: bytes | None = None) -> int:
        number = len(self.asked_s)
        self._add(number, PendingCommand(Push(b"q", None, [b"%d" % number], producer, number), [number], self))
        return number

    def push_own(self) -> int:
        number = len(self.asked_s)
        self.asked_s[number] = Clock.now_s
        self.proposer.add_first(PendingCommand(Barrier(), [number], self))
        return number

    def _add(self, number: int, pending: PendingCommand) -> None:
        self.asked_s[number] = Clock.now_s
        self.proposer.add(pending, 64)

    def completed(self, pending: PendingCommand, _result: Any) -> None:
        self._answered(pending, "ok")

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._answered(pending, error.code)

    def _answered(self, pending: PendingCommand, what: str) -> None:
        # Every sink does this, so that an outcome which becomes known later has no receiver.
        requests, pending.requests = pending.requests, []
        for number in requests:
            self.answers.setdefault(number, []).append((what, Clock.now_s))

    # The log

    def apply(self, position: int) -> None:
        """Append one of the sent batches to the log."""
        origin, incarnation, sequence, commands = msgpack.unpackb(self.sent[position], strict_map_key=False)
        applied = self.machine.apply(1_000_000, origin, incarnation, sequence, commands)
        self.proposer.applied(sequence, applied)

    def apply_all(self) -> None:
        while self._applied < len(self.sent):
            self._applied += 1
            self.apply(self._applied - 1)

    def check(self) -> None:
        for number, asked_s in self.asked_s.items():
            answers = self.answers.get(number, [])
            assert len(answers) == 1, (number, answers)
            assert answers[0][1] - asked_s <= DEADLINE_S, (number, answers, asked_s)


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", Clock)


def test_requests_after_an_abandoned_batch_are_answered_too() -> None:
    """The followers stop: the leader still accepts pushes, 0.3 s apart, and commits none."""
    bench = Bench()
    for _ in range(100):
        bench.push()
        bench.advance(0.3)
    bench.advance(DEADLINE_S)
    bench.check()
    assert {answers[0][0] for answers in bench.answers.values()} == {"unknown_outcome", "no_leader"}


def test_command_of_the_node_itself_does_not_delay_refusals_of_older_requests() -> None:
    bench = Bench()
    bench.leader = False
    old = bench.push()
    bench.advance(module.NO_LEADER_AFTER_S - 1.0)
    bench.push_own()
    bench.advance(1.0 + 2 * module.SWEEP_S)
    assert bench.answers[old][0][0] == "no_leader"


def test_command_of_the_node_itself_in_the_same_batch_does_not_delay_them_either() -> None:
    bench = Bench()
    bench.leader = False
    bench.push()
    bench.advance(module.NO_LEADER_AFTER_S - 1.0)
    bench.push_own()
    bench.leader = True
    bench.proposer.resend()
    bench.advance(DEADLINE_S)
    bench.check()


ACTIONS = st.one_of(
    st.tuples(st.just("push"), st.sampled_from([None, b"p" * 16, b"q" * 16])),
    st.tuples(st.just("own"), st.none()),
    st.tuples(st.just("advance"), st.sampled_from([0.0, 0.1, 0.3, 2.0, 5.0, 11.0])),
    st.tuples(st.just("leader"), st.booleans()),
    st.tuples(st.just("apply"), st.integers(0, 40)),
    st.tuples(st.just("apply all"), st.none()),
    st.tuples(st.just("resend"), st.none()),
    st.tuples(st.just("snapshot"), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ACTIONS, max_size=40))
def test_each_request_is_answered_once_within_its_deadline(actions: list[tuple[str, Any]]) -> None:
    bench = Bench()
    for name, argument in actions:
        if name == "push":
            bench.push(argument)
        elif name == "own":
            bench.push_own()
        elif name == "advance":
            bench.advance(argument)
        elif name == "leader":
            bench.leader = argument
            bench.proposer.resend()
        elif name == "apply" and argument < len(bench.sent):
            bench.apply(argument)
        elif name == "apply all":
            bench.apply_all()
        elif name == "resend":
            bench.proposer.resend_soon()
        elif name == "snapshot":
            bench.proposer.covered(bench.machine.state.node_sequences.last_sequence(b"n1", 7))
    bench.advance(DEADLINE_S)
    bench.check()
