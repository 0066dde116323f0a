"""The machine against the naive model of queue features beyond LMQ's: the same log must give the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmqcluster.core import Applied, Fault, Machine, Op
from lmqcluster.core.handlers.transactions import Conflict
from lmqcluster.core.messages.message import loaded
from lmqcluster.core.queue.rich_messages import TRAIT_BYTES
from tests.property.driver import UNDO

from . import rich_model as m
from .driver import SECOND, compile_pattern, copied, records
from .rich_state import Entry

QUEUES = st.sampled_from([b"a", b"a", b"a", b"b", b"c", b"a+b"])
BODIES = st.binary(max_size=3)
KEYS = st.sampled_from([None, None, b"k1", b"k2"])
TIMES_US = st.sampled_from([0, 0, 1, SECOND, 2 * SECOND, 60 * SECOND])
PRIORITIES = st.sampled_from([0, 0, 0, 1, -1, (1 << 31) - 1, -(1 << 31)])
LABELS = st.sampled_from([b"", b"", b"x", b"y"])
GROUPS = st.sampled_from([b"", b"", b"g", b"h"])
TRAITS = st.one_of(
    st.just([]),
    st.tuples(st.just(-1) | TIMES_US, st.just(0), TIMES_US, PRIORITIES, LABELS, GROUPS).map(list),
    st.tuples(st.just(-1), st.just(0), st.just(0), st.just(0), st.just(b""), GROUPS).map(list),
)
PROPERTIES = st.lists(
    st.one_of(
        st.tuples(st.just(b"retry"), st.sampled_from([0, 1, 2])),
        st.tuples(st.just(b"timeout"), st.sampled_from([30, 1, 0.5])),
        st.tuples(st.just(b"max_items"), st.sampled_from([None, None, 0, 1, 2, 3])),
        st.tuples(st.just(b"max_size"), st.sampled_from([None, None, 0, 1, 4])),
        st.tuples(st.just(b"max_item_size"), st.sampled_from([None, None, 2])),
        st.tuples(st.just(b"discard_old_when_full"), st.sampled_from([None, False, True])),
        st.tuples(st.just(b"delay"), st.sampled_from([None, 0, 1, 1.5])),
        st.tuples(st.just(b"max_age"), st.sampled_from([None, None, 1, 2.5])),
        st.tuples(st.just(b"max_queue_age"), st.sampled_from([None, None, 2])),
        st.tuples(st.just(b"expire_to_queue"), st.sampled_from([None, b"b", b"c"])),
        st.tuples(st.just(b"dead_letter_queue"), st.sampled_from([None, b"b", b"c", b"dead"])),
        st.tuples(st.just(b"retry_delay"), st.sampled_from([None, 0, 1])),
        st.tuples(st.just(b"retry_backoff"), st.sampled_from([None, 2, 1.5])),
        st.tuples(st.just(b"retry_delay_max"), st.sampled_from([None, 2])),
        st.tuples(st.just(b"destination_queues"), st.sampled_from([None, None, None, [b"b"], [b"b", b"c"], []])),
        st.tuples(st.just(b"open_transaction_timeout"), st.sampled_from([None, 1])),
        st.tuples(st.just(b"fanout_only"), st.sampled_from([None, None, True, False])),
        st.tuples(st.just(b"max_deliveries"), st.sampled_from([None, None, 1, 2])),
        st.tuples(st.just(b"group_max_in_flight"), st.sampled_from([None, 1, 2, 3])),
        st.tuples(st.just(b"key_window"), st.sampled_from([None, 1, 2, 60])),
        st.tuples(st.just(b"key_scope"), st.sampled_from([None, b"queue", b"group"])),
    ).map(list),
    max_size=2,
)
AGES = st.lists(st.integers(0, 3) | st.integers(0, 12), min_size=1, max_size=3)
SEQUENCES = st.lists(st.integers(-1, 5), max_size=3).map(tuple) | st.lists(st.integers(0, 3), max_size=4).map(tuple)
"""Explicit sequences as ages: 0 is the message that arrived last, -1 has not arrived yet."""
TARGETS = st.just(b"") | QUEUES | st.lists(QUEUES, max_size=2)
STEPS_US = st.sampled_from([0] * 8 + [1, 500, SECOND // 2, SECOND, 2 * SECOND, 30 * SECOND, 600 * SECOND])


def _command(op: int, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.tuples(st.just(op), *arguments).map(list)


ATTRIBUTES = st.sampled_from([b"", b"", b"\x81\xa1a\x01", b"\x82\xa1a\xa1b\xa1z\xc4\x01\xff"])
REASON = (st.just(False), st.sampled_from([b"no", "späť".encode(), b"e" * 40]), st.sampled_from([20, 25, 1_000]))
ROWS = st.tuples(BODIES, st.none(), ATTRIBUTES, KEYS, TRAITS).map(list)
KEYED_ROWS = st.tuples(BODIES, st.none(), st.just(b""), st.sampled_from([b"k1", b"k2"]), TRAITS).map(list)
UNKEYED_ROWS = st.tuples(BODIES, st.none(), ATTRIBUTES, st.none(), TRAITS).map(list)
PRODUCERS = st.sampled_from([b"p1", b"p2"])
PUSH = st.one_of(
    _command(Op.PUSH, QUEUES, st.none(), st.lists(BODIES, max_size=3), st.none(), st.just(0)),
    _command(Op.PUSH_ROWS, QUEUES, st.lists(ROWS, max_size=3)),
    _command(Op.PUSH_ROWS, QUEUES, st.lists(ROWS, min_size=1, max_size=1)),
    _command(Op.PUSH_ROWS, QUEUES, st.lists(UNKEYED_ROWS, max_size=3), st.just(b""), PRODUCERS, st.integers(1, 12)),
    _command(Op.PUSH_EACH, st.lists(QUEUES, max_size=3), st.tuples(BODIES, st.none(), ATTRIBUTES, st.none()).map(list)),
)
PULL = st.one_of(
    _command(Op.PULL, QUEUES, st.integers(0, 4)),
    _command(Op.PULL, QUEUES, st.integers(0, 4), TIMES_US, st.booleans()),
)
PULL_FIRST = _command(Op.PULL_FIRST, st.lists(QUEUES, max_size=3), st.integers(0, 4))
SETTLE = st.one_of(
    _command(Op.ACK, QUEUES, AGES),
    _command(Op.NACK, QUEUES, AGES),
    _command(Op.NACK, QUEUES, AGES, *map(st.just, UNDO)),
    _command(Op.EXTEND, QUEUES, AGES),
    _command(Op.EXTEND, QUEUES, AGES, st.sampled_from([1, SECOND, 60 * SECOND])),
    _command(Op.NACK, QUEUES, AGES, st.sampled_from([m.TAIL, m.KEEP, m.HEAD]), st.just(-1) | TIMES_US),
    _command(Op.NACK, QUEUES, AGES, st.sampled_from([m.KEEP, m.HEAD]), st.just(-1)),
    _command(Op.NACK, QUEUES, AGES, st.sampled_from([m.TAIL, m.KEEP, m.HEAD]), st.just(-1) | TIMES_US, *REASON),
)
OPERATE = st.one_of(
    _command(Op.SET_PROPERTIES, QUEUES, PROPERTIES),
    _command(Op.SET_PROPERTIES, QUEUES, PROPERTIES),
    _command(Op.DELETE, QUEUES),
    _command(Op.SUSPEND, QUEUES, st.booleans()),
    _command(Op.PURGE, QUEUES, st.integers(0, 3)),
    _command(Op.PURGE, QUEUES, st.integers(1, 3), LABELS),
    _command(Op.PURGE, QUEUES, st.integers(0, 3), st.just(b""), st.none(), st.just(True)),
    _command(Op.PURGE, QUEUES, st.integers(1, 3), LABELS, SEQUENCES),
    _command(Op.MOVE, QUEUES, QUEUES, st.integers(1, 3)),
    _command(Op.REDRIVE, QUEUES, TARGETS, LABELS, st.integers(1, 3)),
    _command(Op.REDRIVE, QUEUES, TARGETS, LABELS, st.integers(1, 3), SEQUENCES),
    _command(Op.BIND, QUEUES, QUEUES),
    _command(Op.BIND, st.just(b"a"), st.just(b"a+b")),
    _command(Op.BIND, QUEUES, QUEUES, st.just(False)),
)
ONE_AGE = st.lists(st.integers(0, 4), min_size=1, max_size=1)
TRANSACTION = _command(
    Op.TRANSACTION,
    st.lists(
        st.one_of(
            _command(Op.PUSH_ROWS, QUEUES, st.tuples(ROWS).map(list)),
            _command(Op.ACK, QUEUES, ONE_AGE),
            _command(Op.NACK, QUEUES, ONE_AGE, st.sampled_from([m.TAIL, m.KEEP, m.HEAD]), st.just(-1) | TIMES_US),
            _command(Op.NACK, QUEUES, ONE_AGE, st.just(m.TAIL), st.just(-1), *REASON),
            _command(Op.EXTEND, QUEUES, ONE_AGE, TIMES_US),
        ),
        max_size=4,
    ),
)
_SELECTING = {Op.PURGE, Op.REDRIVE}
_SETTLING = {Op.ACK, Op.NACK, Op.EXTEND}
_COUNTED = ("pushed", "acked", "nacked", "redelivered", "dropped", "purged", "moved_out", "moved_in", "expired",
            "dead_lettered", "refused", "discarded", "withdrawn", "deduplicated")  # fmt: skip


pytestmark = pytest.mark.usefixtures("keep_idle_queues")


class BrokenCommandError(AssertionError):
    """A command was not refused, but ended with a programming error."""


class RichMachineAgainstModel(RuleBasedStateMachine):
    """Feeds one log to the machine, to a replica that is replaced by its own snapshot from time to time, and
    to the model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(compile_pattern)
        self.replica = Machine(compile_pattern)
        self.model = self.new_model()
        self.stamp_us = 1_700_000_000 * SECOND
        self.sequence = 0
        self.delivered: list[tuple[bytes, int]] = []

    def new_model(self) -> m.RichModel:
        return m.RichModel()

    @initialize()
    def found(self) -> None:
        for machine in (self.machine, self.replica):
            machine.apply(self.stamp_us, b"n", 1, 1, [[Op.SET_SALT, b"0123456789"]])
        self.model.now_us = self.stamp_us
        self.sequence = 1

    @rule(step_us=STEPS_US, commands=st.lists(PUSH, min_size=1, max_size=3))
    def push(self, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(step_us, commands)

    @rule(step_us=STEPS_US, command=PULL | PULL_FIRST)
    def pull(self, step_us: int, command: list[Any]) -> None:
        self._batch(step_us, [command])

    @rule(step_us=STEPS_US, command=SETTLE)
    def settle(self, step_us: int, command: list[Any]) -> None:
        self._batch(step_us, [command])

    @rule(step_us=STEPS_US, command=OPERATE, push=PUSH)
    def operate(self, step_us: int, command: list[Any], push: list[Any]) -> None:
        self._batch(step_us, [command, push])

    @rule(step_us=STEPS_US, commands=st.lists(PUSH | PULL | PULL_FIRST | SETTLE | OPERATE, max_size=6))
    def anything(self, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(step_us, commands)

    @rule(step_us=STEPS_US, pull=PULL, command=TRANSACTION)
    def transact(self, step_us: int, pull: list[Any], command: list[Any]) -> None:
        self._batch(step_us, [pull])
        self._batch(0, [command])

    # Sequences that chance alone would rarely produce.

    @rule(properties=PROPERTIES, row=ROWS, to=st.just(b"") | QUEUES, label=LABELS)
    def a_message_is_dead_lettered_and_redriven(
        self, properties: list[Any], row: list[Any], to: bytes, label: bytes
    ) -> None:
        dying = [[b"retry", 0], [b"timeout", 30], [b"dead_letter_queue", b"b"], *properties]
        self._batch(0, [[Op.SET_PROPERTIES, b"a", dying], [Op.PUSH_ROWS, b"a", [row]], [Op.PULL, b"a", 4]])
        self._batch(SECOND, [[Op.NACK, b"a", [0]], [Op.NACK, b"a", [1]]])
        self._batch(SECOND, [[Op.REDRIVE, b"b", to, label, 3]])

    @rule(
        label=st.sampled_from([b"", b"x"]),
        orders=st.lists(
            st.tuples(
                st.sampled_from([False, False, True]),
                st.just(b"") | TARGETS,
                st.sampled_from([b"", b"x"]),
                st.lists(st.integers(-1, 2), min_size=1, max_size=3).map(tuple),
            ),
            min_size=1,
            max_size=2,
        ),
        which=st.sampled_from([None, "replica", "machine"]),
    )
    def some_dead_letters_are_selected(self, label: bytes, orders: list[Any], which: str | None) -> None:
        dying = [[b"retry", 0], [b"timeout", 30], [b"dead_letter_queue", b"b"]]
        rows = [[b"%d" % place, None, b"", None, [-1, 0, 0, 0, label, b""]] for place in range(3)]
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", dying], [Op.PUSH_ROWS, b"d", rows]])
        self._batch(0, [[Op.PULL, b"d", 3]])
        self._batch(0, [[Op.NACK, b"d", [0, 1, 2]]])
        if which is not None:
            self.restart_from_a_snapshot(which)
        for purges, to, wanted, ages in orders:
            self._batch(0, [[Op.PURGE, b"b", 3, wanted, ages] if purges else [Op.REDRIVE, b"b", to, wanted, 3, ages]])
        self._batch(0, [[Op.SUSPEND, b"d", False], [Op.PULL, b"d", 3]])

    @rule(
        age=st.sampled_from([1, 2.5]),
        commands=st.lists(PULL | SETTLE, min_size=1, max_size=4),
        step_us=STEPS_US,
        late=st.sampled_from([None, b"c"]),
        restarts=st.booleans(),
    )
    def messages_grow_old(
        self, age: float, commands: list[Any], step_us: int, late: bytes | None, restarts: bool
    ) -> None:
        self._batch(0, [[Op.SET_PROPERTIES, b"e", [[b"max_age", age], [b"expire_to_queue", late]]]])
        row = [b"z", None, b"", None, [-1, 0, SECOND // 2, 0, b"", b""]]
        pushes = [[Op.PUSH, b"e", None, [b"x", b"y"], None, 0], [Op.PUSH_ROWS, b"e", [row]]]
        for op, _, *arguments in commands:
            self._batch(step_us, [*pushes, [op, b"e", *arguments]])
        if restarts:
            self.restart_from_a_snapshot("replica")
        self._batch(SECOND, [])

    @rule(items=st.integers(0, 3), pushes=st.lists(ROWS, min_size=1, max_size=3), command=TRANSACTION)
    def a_full_queue_in_a_transaction(self, items: int, pushes: list[Any], command: list[Any]) -> None:
        self._batch(
            0, [[Op.SET_PROPERTIES, b"a", [[b"timeout", 30]]], [Op.PUSH_ROWS, b"a", pushes], [Op.PULL, b"a", 2]]
        )
        back = [Op.NACK, b"a", [0], m.TAIL, -1]
        self._batch(0, [[Op.SET_PROPERTIES, b"a", [[b"max_items", items]]]])
        self._batch(0, [[Op.TRANSACTION, [back, [Op.PUSH_ROWS, b"a", pushes[:1]], *command[1]]]])

    @rule(delay=st.sampled_from([1, 1.5]), settle=st.sampled_from([Op.NACK, Op.EXTEND]), step_us=STEPS_US)
    def a_message_that_comes_back_waits(self, delay: float, settle: Op, step_us: int) -> None:
        own = [[b"retry", 2], [b"timeout", 1], [b"retry_delay", delay], [b"delay", None], [b"exclusive", None]]
        self._batch(0, [[Op.SET_PROPERTIES, b"a", own], [Op.PUSH, b"a", None, [b"x"], None, 0], [Op.PULL, b"a", 4]])
        self._batch(0, [[settle, b"a", [0]], [Op.PULL, b"a", 1]])
        self._batch(step_us, [[Op.PULL, b"a", 1]])
        self._batch(SECOND, [[Op.PULL, b"a", 1]])

    @rule(age=st.sampled_from([1, 2]), step_us=STEPS_US)
    def an_empty_queue_grows_old(self, age: int, step_us: int) -> None:
        self._batch(0, [[Op.DELETE, b"c"], [Op.SET_PROPERTIES, b"c", [[b"max_queue_age", age]]]])
        self._batch(step_us, [[Op.PULL, b"a", 1]])

    @rule(place=st.sampled_from([m.HEAD, m.KEEP, m.TAIL]), bodies=st.lists(BODIES, min_size=3, max_size=4))
    def a_message_comes_back_while_others_wait(self, place: int, bodies: list[bytes]) -> None:
        self._batch(0, [[Op.DELETE, b"d"], [Op.PUSH, b"d", None, bodies, None, 0], [Op.PULL, b"d", 2]])
        self._batch(1, [[Op.NACK, b"d", [0], place, -1], [Op.PULL, b"d", 1]])

    @rule(size=st.integers(1, 3), body=BODIES)
    def a_leased_message_leaves_room(self, size: int, body: bytes) -> None:
        own = [[b"max_size", size], [b"timeout", 30]]
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", own], [Op.PUSH, b"d", None, [b"xyz"], None, 0]])
        self._batch(0, [[Op.PULL, b"d", 1], [Op.PUSH, b"d", None, [body], None, 0]])

    @rule(items=st.integers(1, 2), body=BODIES)
    def a_message_comes_back_and_fills_its_queue(self, items: int, body: bytes) -> None:
        own, row = [[b"max_items", items], [b"timeout", 30]], [body, None, b"", None, []]
        pushes = [b"x"] * items
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", own], [Op.PUSH, b"d", None, pushes, None, 0]])
        self._batch(0, [[Op.PULL, b"d", 1]])
        back = [Op.NACK, b"d", [0], m.TAIL, -1]
        self._batch(0, [[Op.TRANSACTION, [back, [Op.PUSH_ROWS, b"d", [row]]]]])

    @rule(rows=st.lists(UNKEYED_ROWS, min_size=1, max_size=2), first=st.integers(1, 3), room=st.booleans())
    def a_refused_push_is_sent_again(self, rows: list[Any], first: int, room: bool) -> None:
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", [[b"max_items", 1]]]])
        pushes = [[Op.PUSH_ROWS, b"d", rows, b"", b"p3", first], [Op.PUSH_ROWS, b"d", rows, b"", b"p3", first + 2]]
        self._batch(0, pushes)
        self._batch(0, [[Op.SET_PROPERTIES, b"d", [[b"max_items", None if room else 1]]], *pushes])

    @rule(undo=st.sampled_from([(), UNDO]), step_us=STEPS_US)
    def a_message_expires_under_lease(self, undo: Any, step_us: int) -> None:
        row = [b"x", None, b"", None, [-1, 0, SECOND, 0, b"", b""]]
        self._batch(0, [[Op.DELETE, b"d"], [Op.PUSH_ROWS, b"d", [row]], [Op.PULL, b"d", 1, 60 * SECOND, False]])
        self._batch(step_us, [[Op.NACK, b"d", [0], *undo], [Op.PULL, b"d", 1]])

    @rule(bodies=st.lists(BODIES, min_size=1, max_size=2), unbinds=st.booleans())
    def a_queue_is_bound(self, bodies: list[bytes], unbinds: bool) -> None:
        self._batch(0, [[Op.DELETE, b"d"], [Op.DELETE, b"e"], [Op.BIND, b"d", b"e"]])
        change = [[Op.BIND, b"d", b"e", False]] if unbinds else []
        self._batch(0, [*change, [Op.PUSH, b"d", None, bodies, None, 0], [Op.PULL, b"e", 2]])

    @rule(
        own=st.tuples(st.sampled_from([1, 2]), st.sampled_from([None, b"queue", b"group"])),
        pushes=st.lists(
            st.tuples(KEYED_ROWS, st.sampled_from([0, 1, SECOND - 1, SECOND, 2 * SECOND - 1])), min_size=2, max_size=6
        ),
        command=OPERATE,
    )
    def keys_count_for_an_exact_time(self, own: Any, pushes: list[Any], command: list[Any]) -> None:
        self._batch(
            0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", [[b"key_window", own[0]], [b"key_scope", own[1]]]]]
        )
        for row, step_us in pushes:
            self._batch(step_us, [[Op.PUSH_ROWS, b"d", [row]], [Op.PULL, b"d", 1, 0, True]])
        self._batch(0, [[command[0], b"d" if command[0] != Op.BIND else command[1], *command[2:]]])
        self._batch(0, [[Op.PUSH_ROWS, b"d", [row for row, _ in pushes]]])

    @rule(window_s=st.sampled_from([1, 2]), early_us=st.sampled_from([1, SECOND - 1]), body=BODIES)
    def a_key_is_repeated_until_it_ends(self, window_s: int, early_us: int, body: bytes) -> None:
        push, later = ([Op.PUSH_ROWS, b"d", [[body, None, b"", key, []]]] for key in (b"k", b"l"))
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", [[b"key_window", window_s]]], push])
        self._batch(early_us, [push, later])
        self._batch(window_s * SECOND - early_us, [push])

    @rule(most=st.sampled_from([1, 2]), dead=st.sampled_from([None, b"b", b"f"]), row=ROWS, changes=st.booleans())
    def a_message_is_delivered_as_often_as_allowed(
        self, most: int, dead: bytes | None, row: list[Any], changes: bool
    ) -> None:
        own = [[b"retry", 5], [b"timeout", 30], [b"dead_letter_queue", dead], [b"max_deliveries", most]]
        self._batch(0, [[Op.DELETE, b"d"], [Op.DELETE, b"f"], [Op.SET_PROPERTIES, b"d", own]])
        self._batch(0, [[Op.PUSH_ROWS, b"d", [row, [b"last", *row[1:]]]]])
        for _ in range(3):
            self._batch(0, [[Op.PULL, b"d", 1]])
            self._batch(0, [[Op.NACK, b"d", [0], m.KEEP, -1]])
            if changes and dead is not None:
                self._batch(0, [[Op.PUSH, dead, None, [b"y"], None, 0]])

    @rule(
        most=st.sampled_from([None, 1, 2, 3]),
        rows=st.lists(ROWS, min_size=3, max_size=6),
        counts=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        commands=st.lists(SETTLE | PULL, max_size=4),
        step_us=STEPS_US,
    )
    def messages_of_a_group_come_back(
        self, most: int | None, rows: list[Any], counts: tuple[int, int], commands: list[Any], step_us: int
    ) -> None:
        rows = [[*row[:4], [*row[4][:5], b"g"] if row[4] else [-1, 0, 0, 0, b"", b"g"]] for row in rows]
        own = [[b"group_max_in_flight", most], [b"retry", 2], [b"timeout", 1], [b"exclusive", None]]
        self._batch(0, [[Op.SET_PROPERTIES, b"d", own], [Op.PUSH_ROWS, b"d", rows], [Op.PULL, b"d", counts[0]]])
        for op, _, *arguments in commands:
            self._batch(step_us, [[op, b"d", *arguments], [Op.PULL, b"d", counts[1]]])

    @rule(most=st.sampled_from([1, 3]), settle=st.sampled_from([Op.ACK, Op.NACK]), age=st.sampled_from([0, 1]))
    def a_group_goes_on_while_others_wait(self, most: int, settle: Op, age: int) -> None:
        rows = [[body, None, b"", None, [-1, 0, 0, 0, b"", b"g"]] for body in (b"1", b"2", b"3")]
        own = [[b"group_max_in_flight", most], [b"retry", 2], [b"timeout", 30]]
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", own], [Op.PUSH_ROWS, b"d", rows]])
        self._batch(1, [[Op.PULL, b"d", 2]])
        self._batch(0, [[Op.PUSH_ROWS, b"d", [[b"x", None, b"", None, [-1, 0, 0, 0, b"x", b""]]]]])
        self._batch(1, [[settle, b"d", [age], *([m.KEEP, -1] if settle == Op.NACK else [])], [Op.PULL, b"d", 4]])
        for reason in (b"no", b"never"):
            self._batch(0, [[Op.NACK, b"d", [0], m.KEEP, -1, False, reason, 1_000], [Op.PULL, b"d", 1]])

    @rule(which=st.sampled_from(["replica", "machine"]))
    def restart_from_a_snapshot(self, which: str) -> None:
        setattr(self, which, copied(getattr(self, which)))

    def _batch(self, step_us: int, commands: list[list[Any]]) -> None:
        self.stamp_us += step_us
        self.sequence += 1
        commands = [self._resolved(command) for command in commands]
        note(f"apply(+{step_us}, {commands!r})")
        self.model.advance(self.stamp_us)
        pullable = {name for name in self.model.queues if self._pullable(name)}
        expected = [self._expected(command) for command in commands]
        got = self.machine.apply(self.stamp_us, b"n", 1, self.sequence, commands)
        self.replica.apply(self.stamp_us, b"n", 1, self.sequence, commands)
        self._compare(got, expected)
        for result in expected:
            if isinstance(result, list) and result and isinstance(result[0], tuple) and len(result[0]) > 2:
                self.delivered += [(one[0], one[1]) for one in result]
        ready = {queue.name for queue in got.ready}
        for name in self.model.queues:
            if name not in pullable and self._pullable(name):
                assert name in ready, f"{name!r} can be pulled, but was not reported"

    def _compare(self, got: Applied, expected: list[Any]) -> None:
        assert [plain(result) for result in got.results] == expected

    def _pullable(self, name: bytes) -> bool:
        return not self.model.queues[name].suspended and self.model.next_in_line(name) is not None

    def _resolved(self, command: list[Any]) -> list[Any]:
        """Return the command with ages of deliveries replaced by queue and numbers, those of messages by sequences."""
        if command[0] == Op.TRANSACTION:
            return [Op.TRANSACTION, [self._resolved_one(operation) for operation in command[1]]]
        if command[0] in _SELECTING and isinstance(command[-1], tuple):
            return [*command[:-1], [self.model.arrivals - age for age in command[-1]]]
        if command[0] == Op.PULL_FIRST:
            return [Op.PULL_FIRST, self._with_one_priority(command[1]), command[2]]
        if command[0] not in _SETTLING:
            return command
        op, queue, ages, *rest = command
        latest = self.delivered[::-1]
        chosen = [latest[age % len(latest)] for age in ages if latest]
        if chosen:
            queue = chosen[0][0]
        return [op, queue, list(dict.fromkeys(number for _, number in chosen)) or [0, 7], *rest]

    def _with_one_priority(self, names: list[bytes]) -> list[bytes]:
        """Return the queues for which it is specified which of their messages has been due longest."""
        queues = self.model.queues
        return [one for one in names if one not in queues or len({entry.priority for entry in queues[one].entries}) < 2]

    def _resolved_one(self, operation: list[Any]) -> list[Any]:
        if operation[0] == Op.PUSH_ROWS:
            return operation
        op, queue, numbers, *rest = self._resolved(operation)
        return [op, queue, numbers[:1], *rest]

    def _expected(self, command: list[Any]) -> Any:
        op, *arguments = command
        return self._verbs()[Op(op)](*arguments)

    def _verbs(self) -> dict[Op, Callable[..., Any]]:
        model = self.model
        return {
            Op.PUSH: model.push,
            Op.PUSH_ROWS: model.push_rows,
            Op.PULL: model.pull,
            Op.ACK: model.ack,
            Op.NACK: model.nack,
            Op.EXTEND: model.extend,
            Op.SET_PROPERTIES: model.set_properties,
            Op.DELETE: model.delete,
            Op.SUSPEND: model.suspend,
            Op.PUSH_EACH: model.push_each,
            Op.PULL_FIRST: model.pull_first,
            Op.MOVE: model.move,
            Op.PURGE: model.purge,
            Op.REDRIVE: model.redrive,
            Op.BIND: model.bind,
            Op.TRANSACTION: model.transaction,
        }

    @invariant()
    def same_queues(self) -> None:
        assert sorted(self.machine.state.queues) == sorted(self.model.queues)
        for name, queue in self.model.queues.items():
            real = self.machine.state.queues[name]
            assert len(real) == len(queue.entries), name
            assert real.store.waiting() == sum(entry.state != "leased" for entry in queue.entries)
            assert real.store.body_bytes == sum(map(_size, queue.entries))
            if real.store.rich is not None:
                traits = [entry.traits for entry in queue.entries if entry.traits]
                assert real.store.rich.trait_bytes == sum(TRAIT_BYTES + len(one[2]) + len(one[3]) for one in traits)
                assert real.store.rich.leased_bytes == sum(
                    _size(entry) for entry in queue.entries if entry.state == "leased"
                )
            counted = {counter: getattr(real.counters, f"{counter}_total") for counter in _COUNTED}
            assert counted == {counter: queue.counts.get(counter, 0) for counter in _COUNTED}, name

    @invariant()
    def groups_follow_the_rule(self) -> None:
        """The message of a group that is in line comes before all others of it; the others are held or hold them."""
        for queue in self.machine.state.queues.values():
            rich = queue.store.rich
            if rich is None:
                continue
            groups: dict[bytes, list[Any]] = {}
            for line in (rich.waiting, rich.held, rich.holding):
                for message in line:
                    if message.traits.group:
                        groups.setdefault(message.traits.group, []).append(message)
            assert rich.heads.keys() == groups.keys()
            in_line = set(rich.waiting)
            for group, messages in groups.items():
                first, *others = sorted(messages, key=lambda one: (one.place_us, one.sequence))
                assert (first in in_line) == (rich.heads[group] is first) != (first in set(rich.holding))
                assert not in_line & set(others)

    @invariant()
    def same_sums(self) -> None:
        queues = self.machine.state.queues.values()
        lines = [queue.store.rich for queue in queues if queue.store.rich is not None]
        for machine in (self.machine, self.replica):
            assert machine.state.totals.trait_bytes == sum(rich.trait_bytes for rich in lines)
            assert machine.state.totals.body_bytes == sum(queue.store.body_bytes for queue in queues)

    @invariant()
    def replicas_are_equal(self) -> None:
        assert records(self.machine) == records(self.replica)


def plain(result: Any) -> Any:
    if isinstance(result, Fault):
        if result.reason.startswith(("TypeError", "AttributeError", "KeyError", "IndexError")):
            raise BrokenCommandError(result.reason)
        return m.REFUSED
    if isinstance(result, Conflict):
        return result.failed
    if isinstance(result, list) and result and isinstance(result[0], tuple) and len(result[0]) == 4:
        return [_delivery(*one) for one in result]
    return result


def _size(entry: Entry) -> int:
    return len(entry.body) + len(entry.attributes)


def _delivery(queue: bytes, number: int, remaining: int, message: Any) -> Any:
    traits = getattr(message, "traits", None)
    if traits is not None:
        traits = (*traits[:-1], None if traits.origin is None else tuple(traits.origin))
    return (
        queue,
        number,
        remaining,
        message.delivered,
        message.pushed_us,
        loaded(message.content),
        message.meta[1],
        traits,
    )


TestRichMachineAgainstModel = RichMachineAgainstModel.TestCase
