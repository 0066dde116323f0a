"""Batch leases of queues with groups against the naive model, with a replica that is restored from snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from lmqcluster.core import Machine, Op
from lmqcluster.core.messages.message import loaded
from lmqcluster.core.state import batch_leases
from lmqcluster.core.state.batch_lease import BatchState
from lmqcluster.core.state.batch_leases import BatchLeases
from tests.property.driver import UNDO

from .batch_model import BatchModel
from .driver import SECOND
from .test_rich_machine import OPERATE, PULL, PUSH, QUEUES, SETTLE, STEPS_US, RichMachineAgainstModel, _command

STEP_MAX, BLOCK = 3, 2
"""Small enough for these logs to need several steps."""
NAME = st.just(b"s")
EPOCHS = st.integers(1, 4)
COUNTS = st.integers(1, 6)
LEASES_US = st.sampled_from([SECOND // 2, SECOND, 60 * SECOND])
GROUPED = st.lists(
    st.tuples(
        st.binary(max_size=2),
        st.none(),
        st.sampled_from([b"", b"\x81\xa1a\x01"]),
        st.none(),
        st.tuples(
            st.sampled_from([-1, -1, -1, SECOND]),
            st.just(0),
            st.sampled_from([0, 0, 0, SECOND]),
            st.sampled_from([0, 0, 1]),
            st.just(b""),
            st.sampled_from([b"g", b"g", b"h", b""]),
        ).map(list),
    ).map(list),
    min_size=1,
    max_size=4,
)
PUSH_GROUPED = _command(Op.PUSH_ROWS, QUEUES, GROUPED)
RESERVE = st.one_of(
    _command(Op.RESERVE, NAME, EPOCHS, QUEUES, st.just(True), COUNTS, LEASES_US),
    _command(
        Op.RESERVE,
        NAME,
        EPOCHS,
        st.lists(QUEUES, max_size=3),
        st.booleans(),
        COUNTS,
        LEASES_US,
        st.just(0),
        st.just(b""),
    ),
)
BATCH = st.one_of(
    RESERVE,
    _command(Op.RENEW, NAME, LEASES_US),
    _command(Op.SETTLE_BATCHES, NAME, EPOCHS),
    _command(Op.ABANDON_BATCHES, NAME),
)


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """Makes batches need several steps to grow and to be returned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_leases, "STEP_MAX", STEP_MAX)
        patch.setattr(batch_leases, "_BLOCK", BLOCK)
        patch.setattr(BatchLeases, "REMEMBER_US", 1 << 60)
        yield


pytestmark = pytest.mark.usefixtures("keep_idle_queues")


class BatchMachineAgainstModel(RichMachineAgainstModel):
    """Adds the commands of one subscription to the others."""

    model: BatchModel

    def new_model(self) -> BatchModel:
        return BatchModel(STEP_MAX, BLOCK)

    @rule(step_us=STEPS_US, push=PUSH_GROUPED, commands=st.lists(BATCH | PUSH_GROUPED, min_size=1, max_size=4))
    def lease_batches(self, step_us: int, push: list[Any], commands: list[list[Any]]) -> None:
        self._batch(step_us, [push, *commands])

    @rule(step_us=STEPS_US, push=PUSH_GROUPED, command=RESERVE, again=st.integers(1, 3))
    def reserve_again(self, step_us: int, push: list[Any], command: list[Any], again: int) -> None:
        self._batch(step_us, [push, *[command] * again])

    @rule(step_us=STEPS_US, commands=st.lists(BATCH | PUSH_GROUPED | PUSH | PULL | OPERATE, max_size=5), settle=SETTLE)
    def all_kinds(self, step_us: int, commands: list[list[Any]], settle: list[Any]) -> None:
        self._batch(step_us, [*commands, settle])

    @rule(
        rows=GROUPED,
        count=COUNTS,
        settle=st.sampled_from([(Op.ACK,), (Op.NACK,), (Op.NACK, *UNDO)]),
        ages=st.permutations(range(3)),
    )
    def a_batch_is_settled_one_by_one(self, rows: list[Any], count: int, settle: Any, ages: list[int]) -> None:
        for row in rows:
            row[4][5] = b"g"
        reserve = [Op.RESERVE, b"s", self._next_epoch(), b"d", True, count, 60 * SECOND]
        self._batch(0, [[Op.PUSH_ROWS, b"d", rows], reserve, reserve])
        last = self.model.deliveries
        for age in ages[: len(rows)]:
            op, *more = settle
            self._batch(0, [[op, b"d", [max(0, last - age)], *more], [Op.PULL, b"d", 1]])

    @rule(rows=GROUPED, back=st.lists(st.integers(0, 2), unique=True, max_size=3), count=COUNTS)
    def a_batch_meets_a_group_that_comes_back_in_part(self, rows: list[Any], back: list[int], count: int) -> None:
        rows = [[*row[:4], [-1, 0, 0, 0, b"", b"g"]] for row in rows * 4]
        own = [[b"retry", 9], [b"retry_delay", None], [b"max_age", None], [b"max_deliveries", None]]
        self._batch(0, [[Op.DELETE, b"d"], [Op.SET_PROPERTIES, b"d", own], [Op.PUSH_ROWS, b"d", rows]])
        self._batch(0, [[Op.RESERVE, b"s", self._next_epoch(), b"d", True, 3, 60 * SECOND]])
        last = self.model.deliveries
        self._batch(0, [[Op.NACK, b"d", [last - age]] for age in back])
        self._batch(0, [[Op.RESERVE, b"s", self._next_epoch(), b"d", True, count, 60 * SECOND]] * 2)

    @rule(rows=GROUPED, count=st.integers(1, 3), step_us=STEPS_US)
    def a_batch_is_abandoned(self, rows: list[Any], count: int, step_us: int) -> None:
        self._batch(0, [[Op.DELETE, b"e"], [Op.PUSH_ROWS, b"e", rows], [Op.PUSH, b"e", None, [b"x"], None, 0]])
        self._batch(0, [[Op.ABANDON_BATCHES, b"s"]] * 3)
        self._batch(step_us, [[Op.RESERVE, b"s", self._next_epoch(), b"e", True, count, 60 * SECOND]])
        self._batch(step_us, [[Op.ABANDON_BATCHES, b"s"], [Op.PULL, b"e", 2]])

    def _next_epoch(self) -> int:
        return max(self.model.batches, default=self.model.settled) + 1

    def _resolved(self, command: list[Any]) -> list[Any]:
        if command[0] == Op.RESERVE and isinstance(command[3], list):
            return [*command[:3], self._with_one_priority(command[3]), *command[4:]]
        # Numbers that are given literally, see above.
        if command[0] in (Op.ACK, Op.NACK) and command[1] == b"d":
            return command
        return super()._resolved(command)

    def _verbs(self) -> dict[Op, Callable[..., Any]]:
        model = self.model
        return super()._verbs() | {
            Op.RESERVE: model.reserve,
            Op.RENEW: model.renew,
            Op.SETTLE_BATCHES: model.settle_batches,
            Op.ABANDON_BATCHES: model.abandon_batches,
        }

    @invariant()
    def same_batches(self) -> None:
        for epoch in range(1, 6):
            expected = self.model.read(epoch)
            for machine in (self.machine, self.replica):
                assert self._read(machine, epoch) == expected, epoch

    @staticmethod
    def _read(machine: Machine, epoch: int) -> Any:
        state = machine.state.batches.state(b"s", epoch)
        if state != BatchState.LIVE:
            return state
        found = machine.state.batches.read(b"s", epoch, 0, 100)
        return None if found is None else [(number, loaded(message.content)) for _, number, _, message in found]


TestBatchMachineAgainstModel = BatchMachineAgainstModel.TestCase
TestBatchMachineAgainstModel.settings = settings(max_examples=60)
