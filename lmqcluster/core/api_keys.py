"""Keys that open queues by the beginning of their names, for clients that know no tokens.

As with tokens, the core keeps them and never looks at them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .commands import RefusedError

__all__ = ["ApiKeys"]

KEYS_MAX = 10_000
BYTES_MAX = 255


class ApiKeys:
    """Prefixes of queue names by key."""

    def __init__(self) -> None:
        self._prefixes: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys with their prefixes, sorted."""
        return iter(sorted(self._prefixes.items()))

    def prefix(self, key: bytes) -> bytes | None:
        """What the names of the queues begin with that the key opens; None if there is no such key."""
        return self._prefixes.get(key)

    def set(self, key: bytes, prefix: bytes) -> bool:
        """Add a key, or give it another prefix. A command of the state machine.

        Raises:
            ValueError: one of them is malformed.
            RefusedError: ``quota_exceeded`` if there are too many.
        """
        if {type(key), type(prefix)} != {bytes} or not 0 < len(key) <= BYTES_MAX or len(prefix) > BYTES_MAX:
            raise ValueError(f"a key has 1 to {BYTES_MAX} bytes, and its prefix at most as many")
        if key not in self._prefixes and len(self._prefixes) >= KEYS_MAX:
            raise RefusedError("quota_exceeded", f"there are {KEYS_MAX} API keys, the limit; delete some")
        self._prefixes[key] = prefix
        return True

    def delete(self, key: bytes) -> bool:
        """Delete a key; False if there is none. A command of the state machine."""
        return self._prefixes.pop(key, None) is not None

    def rows(self) -> Iterator[list[object]]:
        """All keys with their prefixes, sorted, as of now."""
        return ([key, prefix] for key, prefix in sorted(self._prefixes.items()))

    def load(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Add the rows of a snapshot."""
        for key, prefix in rows:
            self.set(key, prefix)
