"""The subjects that can be simulated, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.hardened import CoreSubject
from tests.simulation.node_stack import NodeSubject
from tests.simulation.queue_subject import QueueSubject
from tests.simulation.stock import StockSubject

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.interfaces import Subject
    from tests.simulation.profiles import Profile

__all__ = ["SUBJECTS", "subject"]

SUBJECTS: dict[str, Callable[..., Subject]] = {
    "core": CoreSubject,
    "node": NodeSubject,
    "queues": QueueSubject,
    "stock": StockSubject,
}


def subject(name: str, profile: Profile) -> Subject:
    """Return the subject `name` with the settings of `profile`."""
    return SUBJECTS[name](
        log_entries=profile.log_entries, durability=profile.durability, quorum_lost_s=profile.quorum_lost_s
    )
