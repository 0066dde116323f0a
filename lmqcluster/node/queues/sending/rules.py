"""Bounds of default rules, which every replica matches with each new queue while it applies the log."""

from __future__ import annotations

from ....wire.errors import LmqError
from ....wire.properties import Rules
from ..patterns.patterns import check_pattern

__all__ = ["RULES_INSTRUCTIONS_MAX", "check_rules"]

RULES_INSTRUCTIONS_MAX = 20_000
"""Largest number of instructions that RE2 compiles all their regular expressions to."""


def check_rules(rules: Rules) -> None:
    """Refuse default rules that are unusable or would make the creation of a queue slow.

    Raises:
        LmqError: ``bad_pattern``, ``bad_property``.
    """
    instructions = sum(check_pattern(pattern.encode()) for pattern, _ in rules)
    if instructions > RULES_INSTRUCTIONS_MAX:
        limit = f"at most {RULES_INSTRUCTIONS_MAX} may be"
        raise LmqError("bad_property", f"RE2 makes {instructions} instructions of the regular expressions, {limit}")
