"""Conversion of Unix times to log times by the leader's clock."""

from __future__ import annotations

import time

import pytest

from lmqcluster.core import Machine
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.node.queues.sending.due_times import DueTimes
from lmqcluster.replication.base.log_clock import LogClock
from lmqcluster.wire.errors import LmqError


class Clocks:
    """A node's state and its clock."""

    def __init__(self) -> None:
        self.machine = Machine(compile_pattern)
        self.clock = LogClock()
        self.due = DueTimes(lambda: self.machine.state, lambda: self.clock)
        self.due.has_had_leader = True


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.mark.parametrize("behind_us", [0, 3_600_000_000])
def test_a_due_time_follows_the_clock_of_the_leader(clocks: Clocks, behind_us: int) -> None:
    """This holds also if the node's estimate of log time lags, as while it applies log entries that it missed."""
    clocks.machine.state.times.tell(1_000_000_000, 5_000_000_000)
    clocks.clock.follow(time.time_ns() // 1000 - behind_us)
    assert [clocks.due.log_us(5_000.0 + second) for second in range(3)] == [1_000_000_000, 1_001_000_000, 1_002_000_000]


def test_a_node_that_has_known_no_leader_converts_nothing(clocks: Clocks) -> None:
    clocks.due.has_had_leader = False
    clocks.machine.state.times.tell(1_000_000_000, 5_000_000_000)
    with pytest.raises(LmqError, match="cannot convert a due time yet") as caught:
        clocks.due.log_us(5_000.0)
    assert (caught.value.code, caught.value.retryable) == ("no_leader", True)


def test_in_a_new_cluster_the_difference_is_measured(clocks: Clocks) -> None:
    clocks.clock.follow(1_000_000_000)
    unix_s = time.time()
    assert abs(clocks.due.log_us(unix_s + 60) - 1_060_000_000) < 30_000_000


def test_there_is_no_log_time_before_the_first(clocks: Clocks) -> None:
    clocks.machine.state.times.tell(1_000_000_000, 5_000_000_000)
    clocks.clock.follow(1_000_000_000)
    assert clocks.due.log_us(1.0) == 1
