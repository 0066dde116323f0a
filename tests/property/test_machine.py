"""The machine against the naive model: the same log must give the same results, sizes, order and contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmqcluster.core import Fault, Machine
from lmqcluster.core.handlers.cluster import ClusterCommands
from lmqcluster.core.log.commands import Ack, Digest, Nack
from lmqcluster.core.queue import lease_table as lease
from lmqcluster.core.queue.settlement_history import SettlementHistory
from lmqcluster.core.state import batch_leases
from lmqcluster.core.state.batch_lease import BatchState
from lmqcluster.core.state.batch_leases import BatchLeases
from lmqcluster.core.state.state import REMEMBER_US
from lmqcluster.wire import limits
from lmqcluster.wire.attributes import Attributes, pack_attributes, unpack_attributes

from . import model as m
from .driver import SECOND, compile_pattern, copied, counters, records

# Few names and contents, so that commands affect each other; patterns that match all, some and none of the names.
QUEUES = st.sampled_from([b"a", b"a", b"ab", b"b"])
PATTERNS = st.sampled_from([b"", b"", b"a", b"^b$", b"b|c", b"none"])
NAMES = st.lists(st.sampled_from([b"a", b"ab", b"b", b"none"]), max_size=4)
CONTENTS = st.binary(max_size=3)
TYPES = st.sampled_from([None, b"text/plain"])
COUNTS = st.integers(0, 4)
NODES = st.sampled_from([b"n1", b"n2"])
PRODUCERS = st.sampled_from([None, b"p1", b"p2"])
KEYS = st.sampled_from([None, b"k1", b"k2"])
HEADERS = st.lists(
    st.tuples(st.sampled_from([b"x-a", b"x-b", b"user-agent"]), CONTENTS).map(list),
    max_size=3,
    unique_by=lambda header: header[0],
)
HOOKS = st.lists(
    st.tuples(
        st.sampled_from([b"pre_http_push", b"other"]),
        st.lists(
            st.tuples(
                st.just(b"lmq_hook_preserve_header"),
                st.lists(st.sampled_from([b"x-a", b"x-b", b"absent"]), max_size=2),
            ).map(list),
            max_size=2,
        ),
    ).map(list),
    max_size=2,
)
PROPERTIES = st.lists(
    st.one_of(
        st.tuples(st.just(b"accum"), st.sampled_from([0, 0, 1, 2000, 60_000, -1000])),
        st.tuples(st.just(b"retry"), st.sampled_from([0, 1, 2, 2, -1, -5])),
        st.tuples(st.just(b"timeout"), st.sampled_from([30, 1, 0.5, 0, -2, 5.25])),
        st.tuples(st.just(b"hooks"), HOOKS),
    ).map(list),
    max_size=3,
)
# From none to more than the 15 attributes that the shortest header of a map can announce.
_GIVEN: tuple[Attributes, ...] = (
    {},
    {},
    {"a": 1},
    {"a": "\xe9", "b": b"\xff", "c": -0.5},
    {str(number): number for number in range(15)},
)
ATTRIBUTES = st.sampled_from([pack_attributes(one) for one in _GIVEN])
ITEMS = st.tuples(CONTENTS, TYPES, ATTRIBUTES, KEYS, HEADERS).map(list)
ROWS = ITEMS.map(lambda item: [*item[:4], [], item[4]])
# A delivery is named by its age, because its number is known only when the batch is assembled.
AGES = st.lists(st.integers(0, 3) | st.integers(0, 12), min_size=1, max_size=3)


def _command(op: int | st.SearchStrategy[int], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.tuples(st.just(op) if isinstance(op, int) else op, *arguments).map(list)


PUSH = _command(m.PUSH, QUEUES, TYPES, st.lists(CONTENTS, max_size=3), PRODUCERS, st.integers(1, 8))
PUSH_ROWS = _command(m.PUSH_ROWS, QUEUES, st.lists(ROWS, max_size=3))
PUSH_STREAM = _command(
    m.PUSH_STREAM,
    QUEUES,
    st.lists(st.tuples(CONTENTS, TYPES, ATTRIBUTES).map(list), max_size=3),
    st.just(b"job"),
    st.sampled_from([b"s", b"t"]),
    st.integers(0, 6),
    CONTENTS,
    st.sampled_from([False, False, False, True]),
    st.sampled_from([b"o", b"p"]),
)
PUSH_EACH = _command(m.PUSH_EACH, NAMES, ITEMS)
PULL = _command(m.PULL, QUEUES, COUNTS)
PULL_FIRST = _command(m.PULL_FIRST, NAMES, COUNTS)
_OF_QUEUES = st.none() | st.none() | QUEUES
SETTLE = st.one_of(
    _command(st.sampled_from([m.ACK, m.NACK, m.EXTEND]), _OF_QUEUES, AGES),
    _command(m.NACK, _OF_QUEUES, AGES, *map(st.just, m.UNDO)),
)
SET_PROPERTIES = _command(m.SET_PROPERTIES, QUEUES, PROPERTIES)
SET_DEFAULTS = _command(m.SET_DEFAULTS, st.lists(st.tuples(PATTERNS, PROPERTIES).map(list), max_size=3))
OPERATE = st.one_of(
    _command(m.PURGE, QUEUES, st.integers(0, 3)),
    _command(m.MOVE, QUEUES, QUEUES, st.integers(1, 3)),
    _command(m.SUSPEND, QUEUES, st.booleans()),
)
REMOVE = st.one_of(
    _command(m.SET_PROPERTIES, QUEUES, st.just([]), st.just(False), st.just(True)), _command(m.DELETE, QUEUES)
)
ANY_COMMAND = st.one_of(
    PUSH,
    PUSH_ROWS,
    PUSH_EACH,
    PULL,
    PULL_FIRST,
    SETTLE,
    SETTLE,
    SET_PROPERTIES,
    SET_DEFAULTS,
    REMOVE,
    OPERATE,
    _command(m.BARRIER),
)

SUBSCRIPTIONS = st.sampled_from([b"s1", b"s1", b"s2"])
EPOCHS = st.integers(1, 4)
LEASES_US = st.sampled_from([SECOND // 2, SECOND, 60 * SECOND])
RESERVE = st.one_of(
    _command(m.RESERVE, SUBSCRIPTIONS, EPOCHS, QUEUES, st.just(True), st.integers(1, 6), LEASES_US),
    _command(m.RESERVE, SUBSCRIPTIONS, EPOCHS, NAMES, st.booleans(), st.integers(1, 6), LEASES_US),
)
BATCH_COMMAND = st.one_of(
    RESERVE,
    RESERVE,
    _command(m.RENEW, SUBSCRIPTIONS, LEASES_US),
    _command(m.SETTLE_BATCHES, SUBSCRIPTIONS, EPOCHS),
    _command(m.ABANDON_BATCHES, SUBSCRIPTIONS),
)

ENDINGS_MAX = 6
STEP_MAX, BLOCK = 3, 2
"""Small enough for these logs to need several steps."""

# Time does not pass, passes a little, or jumps to where leases and windows end or keys are forgotten.
STEPS_US = st.sampled_from(
    [0] * 9 + [1, 500, -SECOND, SECOND // 2, SECOND, 2 * SECOND, 30 * SECOND, REMEMBER_US - 1, REMEMBER_US]
)


@pytest.fixture(autouse=True, scope="module")
def sweep_often() -> Iterator[None]:
    """Make internal tables be swept at the sizes that these logs reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "_SWEEP_MIN", 0)
        patch.setattr(SettlementHistory, "ENDINGS_MAX", ENDINGS_MAX)
        patch.setattr(batch_leases, "STEP_MAX", STEP_MAX)
        patch.setattr(batch_leases, "_BLOCK", BLOCK)
        patch.setattr(batch_leases, "_ROW_RUNS", 1)
        patch.setattr(BatchLeases, "REMEMBER_US", 1 << 60)
        yield


pytestmark = pytest.mark.usefixtures("keep_idle_queues")


class MachineAgainstModel(RuleBasedStateMachine):
    """Feeds one log to the machine, to a replica that is replaced by its own snapshot from time to time, and
    to the model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(compile_pattern)
        self.replica = Machine(compile_pattern)
        self.model = m.Model(_found, limits.IDEMPOTENCY_WINDOW_S, STEP_MAX, BLOCK, ENDINGS_MAX)
        self.stamp_us = 0
        self.sent = {b"n1": [1, 0], b"n2": [1, 0]}  # incarnation and last sequence of each node
        self.delivered: list[tuple[bytes, int]] = []
        self.totals: dict[str, int] = {}
        self.deleted = {"entered": 0, "gone": 0, "left": 0}

    @initialize(salt=st.binary(min_size=10, max_size=10), start_us=st.sampled_from([0, 1_700_000_000 * SECOND]))
    def found(self, salt: bytes, start_us: int) -> None:
        self.stamp_us = start_us
        self._send(b"n1", 1, 1, [[m.SET_SALT, salt]])
        self.sent[b"n1"][1] = 1

    def _batch(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self.stamp_us += step_us
        self.sent[node][1] += 1
        incarnation, sequence = self.sent[node]
        self._send(node, incarnation, sequence, commands)

    # Each rule is drawn equally often, so the common commands have several.

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(PUSH | PUSH_ROWS | PUSH_EACH, min_size=1, max_size=3))
    def push(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(node, step_us, commands)

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(PUSH_STREAM | PULL, min_size=1, max_size=3))
    def write(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(node, step_us, commands)

    @rule(node=NODES, step_us=STEPS_US, command=PULL)
    def pull(self, node: bytes, step_us: int, command: list[Any]) -> None:
        self._batch(node, step_us, [command])

    @rule(node=NODES, step_us=STEPS_US, command=PULL_FIRST)
    def pull_first(self, node: bytes, step_us: int, command: list[Any]) -> None:
        self._batch(node, step_us, [command])

    @rule(node=NODES, step_us=STEPS_US, command=SETTLE)
    def settle(self, node: bytes, step_us: int, command: list[Any]) -> None:
        self._batch(node, step_us, [self._resolved(command)])

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(BATCH_COMMAND | PUSH, min_size=1, max_size=4))
    def lease_batches(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(node, step_us, commands)

    @rule(node=NODES, step_us=STEPS_US, command=RESERVE, again=st.integers(1, 3))
    def reserve_again(self, node: bytes, step_us: int, command: list[Any], again: int) -> None:
        self._batch(node, step_us, [command] * again)

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(OPERATE | OPERATE | PUSH | PULL, min_size=1, max_size=4))
    def operate(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(node, step_us, commands)

    @rule(node=NODES, step_us=STEPS_US, properties=SET_PROPERTIES, push=PUSH)
    def configure_and_push(self, node: bytes, step_us: int, properties: list[Any], push: list[Any]) -> None:
        self._batch(node, step_us, [properties, push])

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(ANY_COMMAND, max_size=6))
    def anything(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(node, step_us, [self._resolved(command) for command in commands])

    @rule(step_us=STEPS_US, count=COUNTS, queue=QUEUES)
    def pull_and_settle_in_one_batch(self, step_us: int, count: int, queue: bytes) -> None:
        coming = [self.model.deliveries + 1 + index for index in range(count)]
        ways: tuple[tuple[int, tuple[Any, ...]], ...] = ((m.NACK, ()), (m.NACK, m.UNDO), (m.ACK, ()))
        settles = [[op, queue, coming[index : index + 1], *more] for index, (op, more) in enumerate(ways)]
        self._batch(b"n1", step_us, [[m.PULL, queue, count], *settles])

    @rule(node=NODES, oddity=st.sampled_from(["twice", "early", "earlier life", "restart"]), by=st.integers(0, 3))
    def something_happens_to_a_node(self, node: bytes, oddity: str, by: int) -> None:
        """Batches arrive twice, before their predecessor, or from an earlier incarnation of the node; each
        counts only once.
        """
        incarnation, last = self.sent[node]
        commands = [[m.PUSH, b"a", None, [b"!"], None, 0]]
        if oddity == "twice":
            assert self._send(node, incarnation, last - by, commands) == "duplicate"
        elif oddity == "early":
            assert self._send(node, incarnation, last + 2 + by, commands) == "gap"
        elif oddity == "earlier life" and last > 0:
            assert self._send(node, incarnation - 1, by, commands) == "duplicate"
        elif oddity == "restart":
            self.sent[node] = [incarnation + 1 + by, 0]

    @rule(which=st.sampled_from(["replica", "machine"]))
    def restart_from_a_snapshot(self, which: str) -> None:
        setattr(self, which, copied(getattr(self, which)))

    def _resolved(self, command: list[Any]) -> list[Any]:
        """Return the command with ages of deliveries replaced by queue and numbers; some are meant for the
        wrong queue.
        """
        op, *arguments = command
        if op not in (m.ACK, m.NACK, m.EXTEND):
            return command
        queue, ages, *more = arguments
        latest = self.delivered[::-1]
        chosen = [latest[age % len(latest)] for age in ages if latest]
        if queue is None:
            queue = chosen[0][0] if chosen else b"a"
        return [op, queue, [number for _, number in chosen] or [0, 7], *more]

    def _send(self, node: bytes, incarnation: int, sequence: int, commands: list[list[Any]]) -> str:
        note(f"apply({self.stamp_us}, {node!r}, {incarnation}, {sequence}, {commands!r})")
        now_us = max(self.model.now_us, self.stamp_us)
        before = {name: (queue, self._pullable(queue, now_us)) for name, queue in self.model.queues.items()}
        status, expected = self.model.apply(self.stamp_us, node, incarnation, sequence, commands)
        got = self.machine.apply(self.stamp_us, node, incarnation, sequence, commands)
        self.replica.apply(self.stamp_us, node, incarnation, sequence, commands)
        assert got.status == status
        # The comparison of running replicas: one restored from a snapshot must not look different.
        assert ClusterCommands(self.machine.state).digest(Digest(b"")) == ClusterCommands(self.replica.state).digest(
            Digest(b"")
        )
        pairs = zip(got.results, expected, strict=True)
        assert [_plain(result) for result in got.results] == [
            _plain(result if awaited is m.ANY_NUMBER else awaited) for result, awaited in pairs
        ]
        self._remember_deliveries(expected)
        self._count_deleted(before)
        self._check_wakeups(before, now_us, {queue.name for queue in got.ready})
        return status

    @staticmethod
    def _pullable(queue: m.Queue, now_us: int) -> bool:
        return not queue.suspended and any(e.due_us <= now_us and e.remaining > 0 for e in queue.entries)

    def _remember_deliveries(self, results: list[Any]) -> None:
        for result in results:
            if isinstance(result, list):
                self.delivered += [(one.queue, one.number) for one in result if isinstance(one, m.Delivery)]

    def _count_deleted(self, before: dict[bytes, tuple[m.Queue, bool]]) -> None:
        # A queue deleted and recreated within one batch loses only the counts of that batch.
        for name, (queue, _) in before.items():
            if self.model.queues.get(name) is not queue:
                self.deleted["entered"] += queue.entered
                self.deleted["gone"] += _gone(queue)
                self.deleted["left"] += len(queue.entries)

    def _check_wakeups(self, before: dict[bytes, tuple[m.Queue, bool]], now_us: int, ready: set[bytes]) -> None:
        """Check that a queue that the batch made pullable is reported, so that waiting pulls are served."""
        for name, queue in self.model.queues.items():
            was_pullable = name in before and before[name] == (queue, True)
            if self._pullable(queue, now_us) and not was_pullable:
                assert name in ready, f"{name!r} can be pulled, but was not reported"

    @invariant()
    def same_queues(self) -> None:
        assert self.machine.state.now_us == self.model.now_us
        assert sorted(self.machine.state.queues) == sorted(self.model.queues)
        for name, queue in self.model.queues.items():
            real = self.machine.state.queues[name]
            assert len(real) == len(queue.entries)
            assert real.head_us() == self.model.head_us(name)
            assert real.store.body_bytes == sum(
                entry.attributes.size + _bytes(entry.content) for entry in queue.entries
            )
            assert (real.counters.acked_total, real.counters.dropped_total) == (queue.acked, queue.dropped)
            moved = (real.counters.moved_out_total, real.counters.moved_in_total)
            assert (real.counters.purged_total, *moved) == (queue.purged, queue.moved_out, queue.moved_in)
            assert real.suspended == queue.suspended

    @invariant()
    def same_batches(self) -> None:
        for name in (b"s1", b"s2"):
            for epoch in range(1, 5):
                expected = self.model.read(name, epoch)
                for machine in (self.machine, self.replica):
                    assert self._read(machine, name, epoch) == expected, (name, epoch)

    @staticmethod
    def _read(machine: Machine, name: bytes, epoch: int) -> Any:
        state = machine.state.batches.state(name, epoch)
        if state != BatchState.LIVE:
            return state
        size = machine.state.batches.subscriptions[name].batches[epoch].count
        slices = [machine.state.batches.read(name, epoch, start, 2) for start in range(0, size, 2)]
        if None in slices:
            return None
        return [(number, remaining) for part in slices for _, number, remaining, _ in part or ()]

    @invariant()
    def same_endings(self) -> None:
        for queue, number in self.delivered[-2 * ENDINGS_MAX :]:
            ways: dict[int, Ack | Nack] = {
                m.ACK: Ack(queue, []),
                m.NACK: Nack(queue, []),
                m.UNDONE: Nack(queue, [], undoes=True),
            }
            for how, settled in ways.items():
                expected = self.model.is_repeated(how, number, ENDINGS_MAX)
                assert self.machine.state.is_repeated(settled, number) == expected, (settled, number)

    @invariant()
    def same_properties(self) -> None:
        for name in (b"a", b"ab", b"b", b"never"):
            assert _text(self.machine.state.properties(name)) == _text(self.model.properties(name))

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        for queue in self.model.queues.values():
            assert queue.entered == len(queue.entries) + _gone(queue)
        assert self.deleted["entered"] == self.deleted["left"] + self.deleted["gone"]

    @invariant()
    def totals_never_fall(self) -> None:
        totals = counters(self.machine)
        assert all(totals[name] >= value for name, value in self.totals.items())
        self.totals = totals

    @invariant()
    def replicas_are_equal(self) -> None:
        assert records(self.machine) == records(self.replica)


def _found(pattern: bytes, name: bytes) -> bool:
    return compile_pattern(pattern)(name)


def _gone(queue: m.Queue) -> int:
    return queue.acked + queue.dropped + queue.purged + queue.moved_out


def _plain(result: Any) -> Any:
    """Return a result of either side in one form."""
    if isinstance(result, Fault):
        return m.REFUSED
    if not isinstance(result, list):
        return result
    return [_plain_delivery(one) for one in result]


def _plain_delivery(one: Any) -> Any:
    if isinstance(one, m.Delivery):
        content = one.content
        if isinstance(content, list):
            content = [(kind, attributes.pairs, body) for kind, attributes, body in content]
        return one.queue, one.number, one.retry, one.content_type, one.attributes.pairs, content
    if isinstance(one, tuple) and len(one) == 4:
        queue, number, retry, message = one
        content = message.content
        if not isinstance(content, bytes):
            content = [(part.content_type, unpack_attributes(part.attributes), part.content) for part in content]
        return queue, number, retry, message.meta[0], unpack_attributes(message.meta[1]), content
    return one


def _bytes(content: Any) -> int:
    return (
        len(content)
        if isinstance(content, bytes)
        else sum(attributes.size + len(body) for _, attributes, body in content)
    )


def _text(value: Any) -> Any:
    """Return properties with all strings as text and all sequences as lists."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [_text(one) for one in value]
    if isinstance(value, dict):
        return {key: _text(one) for key, one in value.items()}
    return value


TestMachineAgainstModel = MachineAgainstModel.TestCase
