"""Pushes with headers and idempotency keys. Every public method is one command of the state machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..dedup.keys import KnownPush, digest_of
from ..log.commands import PushFlag, RefusedError
from ..log.items import Item, checked_item
from ..owners.quotas import Kind, checked_owner
from ..queue.queue import Queue
from ..routing.admission import COPIES_MAX, PLAIN_PUSH, Push, preserved_headers
from ..state.named_queues import NamedQueues
from ..state.state import State

__all__ = ["FLAG_BITS", "KeyedPushes", "store_item"]

FLAG_BITS = 8
"""Width of a remembered flag in bits; the bits above it hold the sequence of the message."""


class KeyedPushes:
    """The commands. A push under a known key stores nothing and returns the result of the first one."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._named = NamedQueues(state)

    def push_items(self, name: bytes, items: list[list[Any]], owner: bytes = b"") -> list[int]:
        """Store messages, each with or without an idempotency key of the owner.

        Raises:
            RefusedError: ``quota_exceeded``; ``key_reused`` if a key was used with another body; ``too_large`` if
                there would be too
                many copies.
        """
        state = self._state
        checked = [checked_item(item) for item in items]
        checked_owner(owner)
        queue = state.queue(name)
        if queue.special and len(checked) * state.admission.reach(queue) > COPIES_MAX:
            raise RefusedError("too_large", f"the copies of {len(checked)} messages are too many; push fewer at once")
        digests = self._check_keys(queue, owner, checked)
        return [self._push_keyed(queue, owner, item, digest) for item, digest in zip(checked, digests, strict=True)]

    def push_each(self, names: list[bytes], item: list[Any]) -> list[tuple[bytes, int]]:
        """Store a message in each of these queues that exists, in the order given."""
        checked = checked_item(item)
        flags: list[tuple[bytes, int]] = []
        copies = 0
        for queue in self._named.queues(names):
            copies += self._state.admission.reach(queue)
            flag = self._store(queue, checked) if copies <= COPIES_MAX else int(PushFlag.OVERSIZED)
            flags.append((queue.name, flag))
        return flags

    # --- parts ----------------------------------------------------------------------------------------------------

    def _check_keys(self, queue: Queue, owner: bytes, items: Iterable[Item]) -> list[bytes]:
        """Refuse keys that are too many or came with another body; return the digests of the keyed bodies."""
        found = self._state.keys.find
        new: dict[bytes, bytes] = {}
        digests: list[bytes] = []
        for item in items:
            digest = b"" if item.key is None else digest_of(item.content)
            digests.append(digest)
            if item.key is None:
                continue
            known = found(owner, queue.name, item.key)
            before = new.setdefault(item.key, digest) if known is None else known.digest
            if before != digest:
                raise RefusedError(
                    "key_reused",
                    f"the idempotency key {item.key!r} was used for another body on this queue; nothing is stored",
                )
        if new:
            self._state.quotas.check(Kind.KEYS, owner, len(new))
        return digests

    def _push_keyed(self, queue: Queue, owner: bytes, item: Item, digest: bytes) -> int:
        state = self._state
        if item.key is None:
            return self._store(queue, item)
        known = state.keys.find(owner, queue.name, item.key)
        if known is not None:
            # Above the flag there may be a sequence, see `PushPlan.store`.
            return known.flag % (1 << FLAG_BITS) | PushFlag.REPLAYED
        flag = self._store(queue, item)
        if flag < PushFlag.FULL:
            state.keys.remember(owner, queue.name, item.key, KnownPush(flag, digest), state.now_us)
            state.expiry.at(state.now_us + state.REMEMBER_US)
        return flag

    def _store(self, queue: Queue, item: Item) -> int:
        return store_item(self._state, queue, item)


def store_item(state: State, queue: Queue, item: Item, push: Push = PLAIN_PUSH) -> int:
    """Store a message in a queue with the headers that the queue preserves; return its flag."""
    meta = (item.content_type, preserved_headers(item.headers, queue.settings.preserved))
    return state.store(queue, meta, [item.content], push)[0]
