"""Sessions, exclusive queues, locks and waiting pushes against the naive model, among all other commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from lmqcluster.core import Applied, Op
from lmqcluster.core.handlers.waiting_pushes import Waits
from lmqcluster.core.log.notices import Pushed

from . import session_model as m
from .driver import SECOND
from .test_rich_machine import (
    ATTRIBUTES,
    KEYS,
    OPERATE,
    PROPERTIES,
    PULL,
    PUSH,
    QUEUES,
    ROWS,
    SETTLE,
    STEPS_US,
    TIMES_US,
    RichMachineAgainstModel,
    plain,
)

TTLS_US = st.sampled_from([SECOND, 2 * SECOND, 60 * SECOND, 600 * SECOND])
WHICH = st.sampled_from([0, 0, 0, 1, 2, 3])
# How many deliveries the client has missed at the end; None if it does not report that.
KNOWN = st.sampled_from([None, None, None, 0, 1, 2, 5])
LOCKS = st.sampled_from([b"l", b"l", b"m"])


def _command(op: int, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.tuples(st.just(op), *arguments).map(list)


_EMPTY: st.SearchStrategy[Any] = st.just([])
WAITING_ROWS = st.tuples(st.binary(max_size=2), st.none(), ATTRIBUTES, KEYS, _EMPTY).map(list)
OPEN = _command(Op.OPEN_SESSION, TTLS_US)
IN_SESSION = st.one_of(
    OPEN,
    _command(Op.RENEW_SESSION, WHICH),
    _command(Op.END_SESSION, WHICH),
    _command(Op.PULL_IN_SESSION, QUEUES, st.integers(0, 4), TIMES_US, WHICH, st.integers(0, 1), KNOWN),
    _command(Op.PULL_IN_SESSION, st.just(b"a"), st.integers(1, 2), st.just(0), WHICH, st.just(1), KNOWN),
    _command(Op.LEAVE_QUEUE, QUEUES, WHICH),
    _command(Op.LOCK, LOCKS, WHICH, st.booleans()),
    _command(Op.UNLOCK, LOCKS, WHICH),
)
_WAITS = tuple(map(st.just, (b"", None, 0, False)))
WAITING = st.one_of(
    _command(Op.PUSH_ROWS, QUEUES, st.lists(WAITING_ROWS, min_size=1, max_size=2), *_WAITS, TIMES_US),
    _command(Op.PUSH_ROWS, QUEUES, st.lists(ROWS, min_size=1, max_size=1), *_WAITS, st.just(60 * SECOND)),
    _command(Op.CANCEL_PUSH, WHICH),
)
LIMITS = st.tuples(st.sampled_from([b"max_items", b"max_size", b"exclusive"]), st.sampled_from([None, 1, 2, 3])).map(
    lambda one: [one[0], bool(one[1]) if one[0] == b"exclusive" else one[1]]
)
_PLACES = {
    Op.RENEW_SESSION: 1,
    Op.END_SESSION: 1,
    Op.PULL_IN_SESSION: 4,
    Op.LEAVE_QUEUE: 2,
    Op.LOCK: 2,
    Op.UNLOCK: 2,
}


pytestmark = pytest.mark.usefixtures("keep_idle_queues")


class SessionMachineAgainstModel(RichMachineAgainstModel):
    """Adds the commands of sessions and waiting pushes to its base."""

    model: m.SessionModel

    def new_model(self) -> m.SessionModel:
        return m.SessionModel()

    @rule(step_us=STEPS_US, commands=st.lists(IN_SESSION, min_size=1, max_size=4))
    def in_session(self, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(step_us, commands)

    @rule(step_us=STEPS_US, commands=st.lists(WAITING | PUSH, min_size=1, max_size=4))
    def wait_for_room(self, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(step_us, commands)

    @rule(limits=st.lists(LIMITS, min_size=1, max_size=2), queue=QUEUES)
    def limit(self, limits: list[Any], queue: bytes) -> None:
        self._batch(0, [[Op.SET_PROPERTIES, queue, limits]])

    @rule(step_us=STEPS_US, commands=st.lists(IN_SESSION | WAITING | PULL | SETTLE | OPERATE, max_size=6))
    def everything(self, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(step_us, commands)

    # Sequences that chance alone would rarely produce.

    @rule(
        pushes=st.lists(ROWS, min_size=2, max_size=4), others=st.lists(IN_SESSION | SETTLE, max_size=4), wait=STEPS_US
    )
    def a_session_that_holds_several_ends(self, pushes: list[Any], others: list[Any], wait: int) -> None:
        self._batch(0, [[Op.OPEN_SESSION, SECOND], [Op.PUSH_ROWS, b"a", pushes]])
        pull = [Op.PULL_IN_SESSION, b"a", 1, 0, 0, 0, None]
        self._batch(0, [pull, pull, pull])
        self._batch(wait, others)
        self._batch(SECOND, [[Op.PULL, b"a", 4]])

    @rule(rows=st.lists(ROWS, min_size=2, max_size=4), missed=st.integers(0, 2))
    def a_response_is_lost(self, rows: list[Any], missed: int) -> None:
        self._batch(0, [[Op.OPEN_SESSION, SECOND], [Op.PUSH_ROWS, b"d", rows]])
        pull = [Op.PULL_IN_SESSION, b"d", 1, 0, 0, 1]
        self._batch(0, [[*pull, None]])
        self._batch(0, [[*pull, 0]])
        self._batch(0, [[*pull, missed]])

    @rule(others=st.lists(IN_SESSION, max_size=3), properties=PROPERTIES)
    def two_stand_in_line(self, others: list[Any], properties: list[Any]) -> None:
        exclusive = [*properties, [b"exclusive", True]]
        self._batch(0, [[Op.OPEN_SESSION, SECOND], [Op.OPEN_SESSION, 60 * SECOND]])
        self._batch(0, [[Op.SET_PROPERTIES, b"a", exclusive], [Op.PUSH, b"a", None, [b"x", b"y"], None, 0]])
        pulls = [[Op.PULL_IN_SESSION, b"a", 1, 0, which, 1, None] for which in (1, 0)]
        self._batch(0, [*pulls, [Op.LOCK, b"l", 1, True], [Op.LOCK, b"l", 0, True]])
        self._batch(0, others)
        self._batch(SECOND, pulls)

    @rule(rows=st.lists(WAITING_ROWS, min_size=2, max_size=4), command=PULL | OPERATE | SETTLE, step_us=STEPS_US)
    def a_place_becomes_free(self, rows: list[Any], command: list[Any], step_us: int) -> None:
        self._batch(
            0, [[Op.SET_PROPERTIES, b"a", [[b"max_items", 1], [b"timeout", 30], [b"discard_old_when_full", None]]]]
        )
        self._batch(0, [[Op.PUSH_ROWS, b"a", [row], b"", None, 0, False, 60 * SECOND] for row in rows])
        self._batch(step_us, [command])
        self._batch(0, [[Op.PULL, b"a", 1]])

    @rule(body=st.binary(max_size=2))
    def another_session_comes_later(self, body: bytes) -> None:
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", [[b"max_items", 1]]]])
        self._batch(
            0,
            [
                [Op.PUSH_ROWS, b"d", [[one, None, b"", None, []]], b"", None, 0, False, 60 * SECOND]
                for one in (b"x", b"y")
            ],
        )
        self._batch(0, [[Op.PULL, b"d", 1], [Op.PUSH, b"d", None, [body], None, 0]])

    def _batch(self, step_us: int, commands: list[list[Any]]) -> None:
        # A result refers to its message. If the lease ends with the same batch, the message shows its final state.
        if {command[0] for command in commands} & {Op.END_SESSION, Op.LEAVE_QUEUE, Op.PULL_IN_SESSION}:
            for place, command in enumerate(commands):
                super()._batch(0 if place else step_us, [command])
        else:
            super()._batch(step_us, commands)

    # --- comparing ------------------------------------------------------------------------------------------------

    def _resolved(self, command: list[Any]) -> list[Any]:
        place = _PLACES.get(command[0])
        if command[0] == Op.PULL_IN_SESSION:
            missed = command[6]
            command = [*command[:6], -1 if missed is None else max(0, self.model.deliveries - missed)]
        if place is not None:
            return [*command[:place], self.model.opened - command[place], *command[place + 1 :]]
        if command[0] == Op.CANCEL_PUSH:
            return [Op.CANCEL_PUSH, self.model.tickets - command[1]]
        return super()._resolved(command)

    def _verbs(self) -> dict[Op, Callable[..., Any]]:
        model = self.model
        return {
            **super()._verbs(),
            Op.OPEN_SESSION: model.open_session,
            Op.RENEW_SESSION: model.renew,
            Op.END_SESSION: model.end_session,
            Op.PULL_IN_SESSION: model.pull_in_session,
            Op.LEAVE_QUEUE: model.leave_queue,
            Op.LOCK: model.lock,
            Op.UNLOCK: model.unlock,
            Op.CANCEL_PUSH: model.cancel_push,
        }

    def _compare(self, got: Applied, expected: list[Any]) -> None:
        self.model.serve()
        results = [("waits", one.ticket) if isinstance(one, Waits) else plain(one) for one in got.results]
        assert results == expected
        notices = [
            ("pushed", one.ticket, plain(one.result)) if isinstance(one, Pushed) else (type(one).__name__.lower(), *one)
            for one in got.notices
        ]
        assert notices == self.model.notices

    @invariant()
    def same_sessions(self) -> None:
        machine, model = self.machine, self.model
        assert len(machine.state.sessions) == len(model.sessions)
        for name in (b"a", b"b", b"c", b"d"):
            assert machine.state.claims.line(name) == model.line(model.claims, name)
        for name in (b"l", b"m"):
            assert machine.state.locks.line(name) == model.line(model.locks, name)
            assert machine.state.locks.token(name) == model.tokens.get(name, 0)

    @invariant()
    def same_waits(self) -> None:
        waits = self.machine.state.waiting_pushes
        assert len(waits) == len(self.model.waits)
        for name, queue in self.machine.state.queues.items():
            assert queue.pushes_waiting == sum(wait.queue == name for wait in self.model.waits)
        assert (waits.size_bytes == 0) == (not self.model.waits)


TestSessionMachineAgainstModel = SessionMachineAgainstModel.TestCase
TestSessionMachineAgainstModel.settings = settings(max_examples=60)
