"""Planted bugs in batch leases of groups: the comparison with the naive model must find each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmqcluster.core.state import batch_leases
from lmqcluster.core.state.batch_leases import BatchLeases
from lmqcluster.core.timers import idle_queues

from . import planted
from .test_batch_machine import BLOCK, STEP_MAX, BatchMachineAgainstModel
from .test_rich_planted import runs_over_one_in_flight

Plant = Callable[[pytest.MonkeyPatch], None]


def groups_that_are_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLeases, "_take_followers", lambda *_args: False)


PLANTS = [runs_over_one_in_flight, groups_that_are_cut]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_queues, "KEEP_US", 1 << 60)
    monkeypatch.setattr(batch_leases, "STEP_MAX", STEP_MAX)
    monkeypatch.setattr(batch_leases, "_BLOCK", BLOCK)
    monkeypatch.setattr(BatchLeases, "REMEMBER_US", 1 << 60)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        planted.run(BatchMachineAgainstModel)
