"""What an answer to a push says of accumulation."""

from __future__ import annotations

__all__ = ["ACCUMULATION", "FLAGS"]

FLAGS = ("no", "new", "yes")
"""No accumulation, a window was opened, a window was joined."""
ACCUMULATION = 3
"""The part of a push's flag that is an index of `FLAGS`."""
