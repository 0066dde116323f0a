"""The machine is total: no log entry makes it raise, and replicas stay equal (design laws 1 and 6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lmqcluster.core import Fault, Machine, Op

from .driver import SECOND, Driver, bodies, compile_pattern, copied, over_the_wire, records

# Everything that MessagePack can encode, biased to numbers and strings that mean something to a command.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.sampled_from([-1, 0, 1, 2, 3, 10**10, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    st.floats(),
    st.sampled_from(
        [b"", b"a", b"q", b"(", b"retry", b"accum", b"timeout", b"hooks", b"pre_http_push", b"\xff", b"x" * 256]
    ),
    st.binary(max_size=4),
)
GARBAGE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=2) | st.integers(0, 9), inner, max_size=2)
    ),
    max_leaves=8,
)

SOUND: list[list[Any]] = [
    [Op.PUSH, b"q", b"text/plain", [b"one", b"two"], b"producer", 1],
    [Op.PUSH, b"q", None, [b"three"], None, 0],
    [
        Op.PUSH_ROWS,
        b"q",
        [[b"four", None, b"", b"key", [], [[b"x-a", b"1"]]], [b"five", b"t", b"\x80", None, []], b"bare"],
    ],
    [Op.PULL, b"q", 2],
    [Op.PULL_FIRST, [b"q"], 2],
    [Op.ACK, b"q", [1, 2]],
    [Op.NACK, b"q", [1, 3]],
    [Op.EXTEND, b"q", [2, 3]],
    [Op.NACK, b"q", [1, 4], 1, 0, True],
    [Op.NACK, b"q", [1, 4], 1, 0, False, b"why", 1_000],
    [Op.PUSH_EACH, [b"q"], [b"six", None, b"", None]],
    [Op.SET_PROPERTIES, b"q", [[b"retry", 1], [b"timeout", 0], [b"hooks", [[b"pre_http_push", [[b"m", [b"x-a"]]]]]]]],
    [Op.SET_PROPERTIES, b"q", [], False, True],
    [Op.SET_PROPERTIES, b"q", [], False, False, [[b"a", b"text"], [b"b", None]], False],
    [Op.PUSH_ATTEMPTS, b"q", [[b"seven", None, b"", b"attempt", []], b"eight"], b""],
    [Op.DELETE, b"q"],
    [Op.SET_DEFAULTS, [[b"q", [[b"accum", 10], [b"retry", 0]]]]],
    [Op.BARRIER],
    [Op.SET_SALT, b"0123456789"],
    [Op.RESERVE, b"s", 1, b"q", True, 2, 1_000_000],
    [Op.RESERVE, b"s", 2, b"q", True, 2, 60_000_000],
    [Op.RENEW, b"s", 1_000_000],
    [Op.SETTLE_BATCHES, b"s", 1],
    [Op.ABANDON_BATCHES, b"s"],
    [Op.SET_TOKEN, b"t", b"d" * 32, 3, b".*", 0, False, 0],
    [Op.SET_TOKEN, b"u", b"e" * 32, 2, b"q", 1_000_000, True, 0],
    [Op.SET_TOKEN, b"v", b"f" * 32, 2, b"q", 0, True, 0, b"t"],
    [Op.SET_TOKEN, b"w", b"g" * 32, 2, b"q", 0, True, 0, b"", b"k" * 32],
    [Op.RENEW, b"s", 1_000_000, 0, 0, b"u"],
    [Op.DELETE_TOKEN, b"t", False],
    [Op.PURGE, b"q", 2],
    [Op.MOVE, b"q", b"a", 2],
    [Op.SUSPEND, b"q", True],
]


def _paths(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Yield the positions in a command where a value may be replaced."""
    found = [path] if path else []
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += _paths(item, (*path, index))
    return found


def _replaced(value: Any, path: tuple[int, ...], new: Any) -> Any:
    if not path:
        return new
    return [_replaced(item, path[1:], new) if index == path[0] else item for index, item in enumerate(value)]


@st.composite
def damaged_commands(draw: st.DrawFn) -> Any:
    """Draw a valid command with one value replaced by garbage, truncated, or with trailing values."""
    command = draw(st.sampled_from(SOUND))
    how = draw(st.integers(0, 9))
    if how == 0:
        return command[: draw(st.integers(0, len(command)))]
    if how == 1:
        return [*command, draw(GARBAGE)]
    return _replaced(command, draw(st.sampled_from(_paths(command))), draw(GARBAGE))


def _moves_the_version(command: Any) -> bool:
    """Return whether such a command may legitimately stop a replica that is too old for it."""
    return isinstance(command, list) and command[:1] == [Op.UPGRADE]


COMMANDS = st.lists(
    st.one_of(
        st.sampled_from(SOUND),
        damaged_commands(),
        damaged_commands(),
        st.tuples(st.sampled_from([-1, 0, 99, *map(int, Op)]))
        .map(list)
        .flatmap(lambda op: st.lists(GARBAGE, max_size=5).map(lambda a: op + a)),
        GARBAGE,
    ).filter(lambda command: not _moves_the_version(command)),
    max_size=6,
)


PLAIN_AND_INDEXED = [[Op.PUSH, b"q", None, [b"one"]], [Op.PUSH_ATTEMPTS, b"q", [b"two"], b""]]


@given(batches=st.lists(st.tuples(COMMANDS, st.integers(-1, 40)), min_size=1, max_size=6), cut=st.integers(0, 5))
@example(batches=[(PLAIN_AND_INDEXED, 0)], cut=0)
def test_garbage_in_the_log_neither_stops_nor_splits_the_replicas(batches: list[Any], cut: int) -> None:
    first, second = Machine(compile_pattern), Machine(compile_pattern)
    now_us = 0
    for sequence, (commands, step_s) in enumerate(batches, 1):
        now_us += step_s * SECOND
        logged = over_the_wire(commands)
        statuses = {machine.apply(now_us, b"n", 1, sequence, logged).status for machine in (first, second)}
        assert statuses == {"applied"}
        _check_books(first)
        if sequence == cut:
            second = copied(second)
    assert records(first) == records(second)
    # Leftovers of garbage do not affect valid clients, and both replicas answer them alike.
    answers = [_use(Driver(machine)) for machine in (first, second)]
    assert answers[0] == answers[1]


def _check_books(machine: Machine) -> None:
    for queue in machine.state.queues.values():
        # With an index, as polls and sends of SQS use, all messages are in the lines with traits.
        lines = [] if queue.store.rich is None else queue.store.rich.lines()
        messages = [
            *queue.store.ready,
            *(entry[2] for entry in queue.store.delayed),
            *queue.store.leases.messages.values(),
            *(message for _name, line in lines for message in line),
        ]
        contents = [
            [message.content] if isinstance(message.content, bytes) else [part.content for part in message.content]
            for message in messages
        ]
        attributes = [message.meta[1] for message in messages]
        attributes += [part.attributes for one in messages if isinstance(one.content, list) for part in one.content]
        size = sum(len(body) for parts in contents for body in parts) + sum(map(len, attributes))
        assert queue.store.body_bytes == size
        stored = sum(len(parts) for parts in contents)
        # Moved messages count by message, whatever number of parts they have.
        assert queue.counters.moved_in_total or stored <= queue.counters.pushed_total
        gone = (
            queue.counters.acked_total
            + queue.counters.dropped_total
            + queue.counters.purged_total
            + queue.counters.moved_out_total
        )
        assert len(messages) + gone <= queue.counters.pushed_total + queue.counters.moved_in_total


def _use(driver: Driver) -> list[Any]:
    driver.defaults()
    driver.delete(b"fresh")
    driver.push(b"fresh", b"x", b"y")
    driver.wait(10**7)
    answers: list[Any] = [[(queue, bodies([one]), one[1]) for one in driver.pull_first(b"", 50) for queue in [one[0]]]]
    driver.delete(b"fresh")
    driver.push(b"fresh", b"z")
    (taken,) = driver.pull(b"fresh")
    answers += [bodies([taken]), driver.ack(b"fresh", taken[1])]
    return answers


@pytest.mark.parametrize("commands", [[command] for command in SOUND], ids=lambda commands: commands[0][0].name)
def test_sound_commands_are_carried_out(commands: list[Any]) -> None:
    """The commands that the fuzzing damages are valid to begin with."""
    existing = [Op.CREATE, b"q", b"", []]
    results = Machine(compile_pattern).apply(0, b"n", 1, 1, over_the_wire([existing, *commands])).results
    assert not isinstance(results[-1], Fault)
