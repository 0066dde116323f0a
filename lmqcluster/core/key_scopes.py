"""Idempotency keys of whole jobs: remembered together, and let go together when the job is done.

A job that writes many messages needs every key until it has ended, and none afterwards. So its keys belong to a *scope* that
the job names; the scope is forgotten when the job says so, or when it has not been used for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .owned import OwnedTable
from .quotas import Kind, Quotas

__all__ = ["KeyScopes"]

_ROW_KEYS = 500

_Flags = dict[tuple[bytes, bytes], int]


class _Scope:
    __slots__ = ("flags", "used_us")

    def __init__(self) -> None:
        self.used_us = 0
        self.flags: _Flags = {}


class KeyScopes:
    """Results of keyed pushes by (owner, scope)."""

    def __init__(self, window_us: int, quotas: Quotas) -> None:
        self._window_us = window_us
        self._quotas = quotas
        self._scopes: OwnedTable[_Scope] = OwnedTable()
        self._count = 0
        # Flags of scopes that are gone: to free a million at once would take long.
        self._discarded: list[_Flags] = []

    def __len__(self) -> int:
        return self._count

    def knows(self, owner: bytes, name: bytes) -> bool:
        """Whether the scope exists; one that belongs to nobody exists for everybody."""
        return self._scopes.find(owner, name) is not None

    def use(self, owner: bytes, name: bytes, now_us: int) -> None:
        """Take note that a scope, which is made if need be, is in use. One that belongs to nobody gets an owner by that."""
        found = self._scopes.find(owner, name)
        whose, scope = (owner, _Scope()) if found is None else found
        if found is not None and whose != owner:
            self._pop(whose, name)
        if found is None or whose != owner:
            self._quotas.take(Kind.SCOPES, owner)
            self._count_keys(owner, len(scope.flags))
        scope.used_us = now_us
        self._scopes.put(owner, name, scope)

    def find(self, owner: bytes, name: bytes, queue: bytes, key: bytes) -> int | None:
        """The flag of the push that first used the key on this queue in a scope, or None."""
        found = self._scopes.find(owner, name)
        return None if found is None else found[1].flags.get((queue, key))

    def remember(self, owner: bytes, name: bytes, queue: bytes, key: bytes, flag: int) -> None:
        """Keep the flag of a push whose key `find` did not know, in a scope in use."""
        scope = self._scopes.get(owner, name)
        assert scope is not None  # noqa: S101 - for the type checker; the scope is in use
        scope.flags[queue, key] = flag
        self._count_keys(owner, 1)

    def _count_keys(self, owner: bytes, count: int) -> None:
        if count > 0:
            self._quotas.take(Kind.KEYS, owner, count)
        elif count:
            self._quotas.give(Kind.KEYS, owner, -count)
        self._count += count

    def forget(self, owner: bytes, names: Iterable[bytes]) -> int:
        """Let go of the owner's scopes; returns how many keys they held."""
        before = self._count
        for name in names:
            self._discard(owner, name)
        return before - self._count

    def _pop(self, owner: bytes, name: bytes) -> _Scope | None:
        scope = self._scopes.pop(owner, name)
        if scope is not None:
            self._quotas.give(Kind.SCOPES, owner)
            self._count_keys(owner, -len(scope.flags))
        return scope

    def _discard(self, owner: bytes, name: bytes) -> None:
        scope = self._pop(owner, name)
        if scope is not None and scope.flags:
            self._discarded.append(scope.flags)

    def due_us(self) -> int | None:
        """Log time from which the next scope need not be remembered, None without scopes."""
        if self._discarded:
            return 0
        oldest = self._scopes.oldest()
        return None if oldest is None else oldest[1].used_us + self._window_us

    def expire(self, now_us: int, limit: int | None) -> int:
        """Forget up to `limit` scopes that were not used for the window, and free memory of those forgotten; returns how many."""
        expired = 0
        while expired != limit and (oldest := self._scopes.oldest()) is not None:
            (owner, name), scope = oldest
            if scope.used_us > now_us - self._window_us:
                break
            self._discard(owner, name)
            expired += 1
        self._free(limit)
        return expired

    def _free(self, limit: int | None) -> None:
        for _ in range(len(self._discarded) if limit is None else limit):
            if not self._discarded:
                break
            flags = self._discarded[-1]
            for _ in range(min(_ROW_KEYS, len(flags))):
                flags.popitem()
            if not flags:
                self._discarded.pop()

    def rows(self) -> Iterator[list[object]]:
        """The table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        frozen = [(owner, name, scope.used_us, scope.flags.copy()) for (owner, name), scope in self._scopes.items()]
        return _rows(frozen)

    def load(self, rows: Iterable[tuple[bytes, bytes, int, list[list[object]]]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a key is malformed, or there twice.
        """
        for owner, name, used_us, keys in rows:
            scope = self._scopes.get(owner, name)
            if scope is None:
                scope = _Scope()
                self._scopes.put(owner, name, scope)
                self._quotas.take(Kind.SCOPES, owner)
            scope.used_us = used_us
            for queue, key, flag in keys:
                if type(queue) is not bytes or type(key) is not bytes or type(flag) is not int:
                    raise ValueError("a key of a scope is malformed")
                if (queue, key) in scope.flags:
                    raise ValueError("a key of a scope is there twice")
                scope.flags[queue, key] = flag
            self._count_keys(owner, len(keys))


def _rows(scopes: list[tuple[bytes, bytes, int, _Flags]]) -> Iterator[list[object]]:
    for owner, name, used_us, flags in scopes:
        keys = [[queue, key, int(flag)] for (queue, key), flag in flags.items()]
        for start in range(0, max(1, len(keys)), _ROW_KEYS):
            yield [owner, name, used_us, keys[start : start + _ROW_KEYS]]
