"""The keys of pushes in the model of all queue features: plain lists that are searched."""

from __future__ import annotations

from typing import Any, NamedTuple

REMEMBER_US = 600_000_000


class Place(NamedTuple):
    """Where a key counts: its queue, its owner unless the queue has a window, the window or None, and the group if the
    scope is the group.
    """

    queue: bytes
    key: Any
    owner: bytes = b""
    window_us: int | None = None
    group: bytes | None = None


def place_of(model: Any, name: bytes, row: list[Any], owner: bytes) -> Place:
    """Return where the key of a row counts, by the properties that its queue has now."""
    queue, asked = model.named(name), row[4]
    window_us = model.us(queue, "key_window")
    by_group = window_us is not None and model.value(queue, "key_scope") == b"group"
    group = (asked[5] if asked else b"") if by_group else None
    return Place(name, row[3], owner if window_us is None else b"", window_us, group)


class _Known(NamedTuple):
    place: Place
    ends_us: int
    flag: int
    first: int
    body: bytes


class KnownPushes:
    """The first push with each key."""

    def __init__(self) -> None:
        self.known: list[_Known] = []

    def find(self, place: Place, body: bytes, now_us: int) -> tuple[int, int, bytes] | None:
        """Return flag, number and body of the first push with this key; an exact key has any body.

        A key without an owner is one of any owner too, unless that one has used it.
        """
        if place.key is None:
            return None
        is_exact = place.window_us is not None
        for wanted in (place, place._replace(owner=b"")):
            for one in self.known:
                same = one.place._replace(window_us=None) == wanted._replace(window_us=None)
                if same and is_exact == (one.place.window_us is not None) and now_us < one.ends_us:
                    return one.flag, one.first, body if is_exact else one.body
        return None

    def add(self, place: Place, body: bytes, now_us: int, flag: int, first: int) -> None:
        """Remember a first push."""
        window_us = REMEMBER_US if place.window_us is None else place.window_us
        if place.key is not None:
            self.known.append(_Known(place, now_us + window_us, flag, first, body))

    def forget(self, queue: bytes) -> None:
        """Forget the exact keys of a queue."""
        self.known = [one for one in self.known if one.place.queue != queue or one.place.window_us is None]
