"""Planted bugs in batch leases of groups: the comparison with the naive model must find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from lmqcluster.core import Queue
from lmqcluster.core.queue.rich_messages import RichLines
from lmqcluster.core.state import batch_leases
from lmqcluster.core.state.batch_leases import BatchLeases
from lmqcluster.core.timers import idle_queues

from .test_batch_machine import BLOCK, STEP_MAX, BatchMachineAgainstModel

Plant = Callable[[pytest.MonkeyPatch], None]


def messages_that_come_back_alone(patch: pytest.MonkeyPatch) -> None:
    def come_back(lines: RichLines, message: Any, due_us: int, now_us: int, _pre_images: Any) -> bool:
        message.due_us = message.ready_us = due_us
        lines.enter(message, now_us)
        return False

    patch.setattr(RichLines, "come_back", come_back)


def groups_that_are_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLeases, "_take_followers", lambda *_args: False)


def followers_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichLines, "follows", lambda *_args: None)


def given_back_from_the_front(patch: pytest.MonkeyPatch) -> None:
    put_back = Queue.put_back_uncharged
    patch.setattr(Queue, "put_back_uncharged", lambda queue, now_us, numbers: put_back(queue, now_us, numbers[::-1]))


PLANTS = [messages_that_come_back_alone, groups_that_are_cut, followers_forgotten, given_back_from_the_front]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_queues, "KEEP_US", 1 << 60)
    monkeypatch.setattr(batch_leases, "STEP_MAX", STEP_MAX)
    monkeypatch.setattr(batch_leases, "_BLOCK", BLOCK)
    monkeypatch.setattr(BatchLeases, "REMEMBER_US", 1 << 60)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            BatchMachineAgainstModel,
            settings=settings(
                max_examples=400,
                deadline=None,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
