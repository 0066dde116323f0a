"""The table of leases against a plain dictionary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster.core.messages.message import Message
from lmqcluster.core.queue import lease_table as lease
from lmqcluster.core.queue.expiry import NEVER

DEADLINES = st.integers(0, 12) | st.just(NEVER)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DEADLINES, st.integers(1, 4)),
        st.tuples(st.just("settle"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("settle all but one"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("reschedule"), st.integers(0, 30), DEADLINES),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=600)
@given(steps=STEPS, sweep_min=st.integers(0, 8))
def test_leases_end_in_the_order_of_deadline_and_number(steps: list[Any], sweep_min: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "_SWEEP_MIN", sweep_min)
        table = lease.LeaseTable()
        expected: dict[int, int] = {}  # number: deadline
        last = 0
        for what, one, other in steps:
            live = sorted(expected)
            if what == "add":
                messages = [Message(last + index, one, 1, (None, b""), b"") for index in range(1, other + 1)]
                table.add(one, last + 1, messages)
                expected.update({message.sequence: one for message in messages})
                last += other
            elif what == "settle" and live:
                del table.messages[live[one % len(live)]], expected[live[one % len(live)]]
            elif what == "settle all but one" and live:
                kept = live[one % len(live)]
                for number in live:
                    if number != kept:
                        del table.messages[number], expected[number]
            elif what == "reschedule" and live:
                number = live[one % len(live)]
                table.reschedule(number, other)
                expected[number] = other
            elif what == "pop" and min(expected.values(), default=NEVER) != NEVER:
                first = min(live, key=lambda number: (expected[number], number))
                assert table.pop_head()[1].sequence == first
                del expected[first]
            assert table.head_us() == min((one for one in expected.values() if one != NEVER), default=None)
            assert len(table) == len(expected)
