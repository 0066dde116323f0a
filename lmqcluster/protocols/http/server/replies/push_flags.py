"""Accumulation in answers to pushes."""

from __future__ import annotations

__all__ = ["ACCUMULATION", "FLAGS"]

FLAGS = ("no", "new", "yes")
"""Texts for no accumulation, an opened window, a joined window."""
ACCUMULATION = 3
"""Mask of the part of a push's flag that is an index of `FLAGS`."""
