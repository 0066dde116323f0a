"""Bounds on default rules: every new queue is matched with them while the log is applied, on every replica."""

from __future__ import annotations

from ....wire.errors import LmqError
from ....wire.properties import Rules
from ..patterns.patterns import check_pattern

__all__ = ["RULES_INSTRUCTIONS_MAX", "check_rules"]

RULES_INSTRUCTIONS_MAX = 20_000
"""Most instructions that RE2 makes of all their regular expressions."""


def check_rules(rules: Rules) -> None:
    """Refuse default rules that cannot be used, or would make the creation of a queue take long.

    Raises:
        LmqError: ``bad_pattern``, ``bad_property``.
    """
    instructions = sum(check_pattern(pattern.encode()) for pattern, _ in rules)
    if instructions > RULES_INSTRUCTIONS_MAX:
        limit = f"at most {RULES_INSTRUCTIONS_MAX} may be"
        raise LmqError("bad_property", f"RE2 makes {instructions} instructions of the regular expressions, {limit}")
