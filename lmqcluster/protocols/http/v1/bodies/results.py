"""Results of pushes in the format of the ``/v1`` routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....core import PushFlag
from ...server.replies.push_flags import ACCUMULATION, FLAGS

if TYPE_CHECKING:
    from .....node.queues.sending.push_items import Stored

__all__ = ["pushed"]


def pushed(stored: Stored) -> dict[str, object]:
    """Return the result of one push."""
    shown: dict[str, object] = {"accum": FLAGS[stored.flag & ACCUMULATION]}
    if stored.flag & PushFlag.REPLAYED:
        shown["replayed"] = True
    if stored.told_sequence is not None:
        shown["sequence"] = stored.told_sequence
    return shown
