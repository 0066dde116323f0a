"""Thresholds of the queues that need attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from . import values
from .option import option

__all__ = ["AttentionOptions"]


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Options that decide which queues a node reports as needing attention."""

    attention_waiting_seconds: int = field(
        default=600,
        metadata=option(
            values.count,
            "A queue needs attention if its oldest ready message has waited for at least this many seconds. 0 is off. Set this "
            "and the next two options alike on all nodes.",
            extremes="A short time reports every queue whose consumers pause.",
            metavar="SECONDS",
            default="600",
        ),
    )
    attention_dead_letters: int = field(
        default=1,
        metadata=option(
            values.count,
            "A queue needs attention if at least this many of its messages were dead-lettered or dropped after their last "
            "delivery, in the last five to ten minutes. 0 is off.",
            extremes="A large number hides messages that fail one by one.",
            metavar="COUNT",
            default="1",
        ),
    )
    attention_returns: int = field(
        default=100,
        metadata=option(
            values.count,
            "A queue needs attention if at least this many of its deliveries, and at least a tenth of them, were returned or "
            "not answered in time, in the last five to ten minutes. 0 is off.",
            extremes="A small number reports a single failing consumer.",
            metavar="COUNT",
            default="100",
        ),
    )

    def attention_thresholds(self) -> tuple[int, int, int]:
        """Return the thresholds of waiting messages in seconds, of dead letters and of returns."""
        return self.attention_waiting_seconds, self.attention_dead_letters, self.attention_returns

    def validate_attention(self, fail: Callable[[str, str], NoReturn]) -> None:
        """Call `fail` with the name of an invalid option and the reason."""
        for name in ("attention_waiting_seconds", "attention_dead_letters", "attention_returns"):
            if getattr(self, name) < 0:
                fail(name, f"must be at least 0, not {getattr(self, name)}")
