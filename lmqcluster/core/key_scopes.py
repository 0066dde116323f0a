"""Idempotency keys of whole jobs: remembered together, and let go together when the job is done.

A job that writes many messages needs every key until it has ended, and none afterwards. So its keys belong to a *scope* that
the job names; the scope is forgotten when the job says so, or when it has not been used for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

__all__ = ["KeyScopes"]

_ROW_KEYS = 500


class _Scope:
    __slots__ = ("flags", "used_us")

    def __init__(self) -> None:
        self.used_us = 0
        self.flags: dict[tuple[bytes, bytes], int] = {}


class KeyScopes:
    """Results of keyed pushes by scope, the least recently used first.

    The number of keys is bounded by the node, which refuses keyed pushes over its limit before they reach the log.
    """

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._scopes: OrderedDict[bytes, _Scope] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def use(self, name: bytes, now_us: int) -> None:
        """Take note that a scope, which is made if need be, is in use; forgets those that were not for the window."""
        scopes = self._scopes
        while scopes and next(iter(scopes.values())).used_us <= now_us - self._window_us:
            self._count -= len(scopes.popitem(last=False)[1].flags)
        scope = scopes.get(name)
        if scope is None:
            scope = scopes[name] = _Scope()
        scope.used_us = now_us
        scopes.move_to_end(name)

    def find(self, name: bytes, queue: bytes, key: bytes) -> int | None:
        """The flag of the push that first used the key on this queue in a scope that is in use, or None."""
        return self._scopes[name].flags.get((queue, key))

    def remember(self, name: bytes, queue: bytes, key: bytes, flag: int) -> None:
        """Keep the flag of a push whose key `find` did not know."""
        self._scopes[name].flags[queue, key] = flag
        self._count += 1

    def forget(self, names: Iterable[bytes]) -> int:
        """Let go of scopes; returns how many keys they held."""
        before = self._count
        for name in names:
            scope = self._scopes.pop(name, None)
            if scope is not None:
                self._count -= len(scope.flags)
        return before - self._count

    def rows(self) -> Iterator[list[object]]:
        """The table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        frozen = [(name, scope.used_us, scope.flags.copy()) for name, scope in self._scopes.items()]
        return _rows(frozen)

    def load(self, rows: Iterable[tuple[bytes, int, list[list[object]]]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a key is malformed, or there twice.
        """
        for name, used_us, keys in rows:
            scope = self._scopes.setdefault(name, _Scope())
            scope.used_us = used_us
            for queue, key, flag in keys:
                if type(queue) is not bytes or type(key) is not bytes or type(flag) is not int:
                    raise ValueError("a key of a scope is malformed")
                if (queue, key) in scope.flags:
                    raise ValueError("a key of a scope is there twice")
                scope.flags[queue, key] = flag
                self._count += 1


def _rows(scopes: list[tuple[bytes, int, dict[tuple[bytes, bytes], int]]]) -> Iterator[list[object]]:
    for name, used_us, flags in scopes:
        keys = [[queue, key, int(flag)] for (queue, key), flag in flags.items()]
        for start in range(0, max(1, len(keys)), _ROW_KEYS):
            yield [name, used_us, keys[start : start + _ROW_KEYS]]
