"""Properties in the format of clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["shown"]


def shown(properties: Iterable[tuple[str, object]]) -> dict[str, Any]:
    """Return properties in the format of clients: ``accum`` in seconds, hooks as an object."""
    return {name: _shown_value(name, value) for name, value in properties}


def _shown_value(name: str, value: Any) -> Any:
    if name == "accum":
        return value / 1000
    if name == "hooks" and not isinstance(value, Mapping):
        return dict(value)
    return value
