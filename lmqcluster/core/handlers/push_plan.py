"""Several pushes that are stored as a whole or not at all."""

from __future__ import annotations

from ..dedup.exact_keys import exact_key
from ..dedup.keys import KnownPush, PushKey, digest_of
from ..log.items import Item
from ..log.results import PushFlag, Refusal, RefusedError
from ..messages.attributes import Reason, reasoned
from ..messages.message import Message, message_bytes
from ..owners.quotas import Kind
from ..queue.queue import Queue
from ..routing.admission import PLAIN_PUSH, Push, Room, attributes_kept, refuse
from ..state.state import State

__all__ = ["FLAG_BITS", "PushPlan", "known_push", "store_item"]

FLAG_BITS = 8
"""Width of a remembered flag in bits; the bits above it hold the sequence of the message."""


class PushPlan:
    """Checks all pushes before any is stored; once every check has passed, all can be stored."""

    def __init__(self, state: State, owner: bytes) -> None:
        self._state = state
        self._owner = owner
        self._room = Room(state.admission)
        self._new_keys: dict[PushKey, bytes] = {}

    def add(self, queue: Queue, item: Item, push: Push) -> None:
        """Reserve room for a push; one under a known key stores nothing.

        Raises:
            RefusedError: ``full``, ``too_large``, ``key_reused``, ``quota_exceeded`` for too many new keys.
        """
        self.check(queue, self.try_add(queue, item, push))

    def try_add(self, queue: Queue, item: Item, push: Push) -> Refusal | None:
        """Reserve room for a push; return why the queue refuses it, if it does.

        Raises:
            RefusedError: ``key_reused``, ``quota_exceeded``.
        """
        if item.key is not None and self._is_known(_push_key(queue, self._owner, item.key, push.group), item):
            return None
        if not queue.special:
            return None
        return self._room.take(queue, len(item.content), len(attributes_kept(queue, item)))

    def check(self, queue: Queue, refusal: Refusal | None) -> None:
        """Refuse the whole command if a queue refuses one of the pushes.

        Raises:
            RefusedError: ``full``, ``too_large``.
        """
        if refusal is not None:
            refuse(queue, refusal)

    def nack(self, queue: Queue, message: Message, reason: Reason | None) -> None:
        """Reserve room for a message that returns to a queue for a reason, or leaves it for another one."""
        size = message_bytes(message) + len(reasoned(message, reason)) - len(message.meta[1])
        destination = queue.destination_of(message, self._state.now_us)
        if destination is None:
            self._room.add(queue, size)
        elif destination:
            self._room.add(self._state.exits.target(queue, destination), size)

    def _is_known(self, key: PushKey, item: Item) -> bool:
        digest = b"" if key.window_us else digest_of(item.content)
        known = self._state.keys.find(key, self._state.now_us)
        before = self._new_keys.get(key) if known is None else known.digest
        if before not in (None, digest):
            raise RefusedError(
                "key_reused",
                f"the idempotency key {item.key!r} was used for another body on this queue; nothing is stored",
            )
        if before is None and known is None:
            self._state.quotas.check(Kind.KEYS, self._owner, len(self._new_keys) + 1)
            self._new_keys[key] = digest
        return before is not None

    def store(self, queue: Queue, item: Item, push: Push) -> tuple[int, int]:
        """Store a message; return its flag and its sequence, under a known key those of the first push."""
        state = self._state
        key = None if item.key is None else _push_key(queue, self._owner, item.key, push.group)
        known = None if key is None else state.keys.find(key, state.now_us)
        if known is not None:
            queue.counters.deduplicated_total += 1
            return known.flag % (1 << FLAG_BITS) | PushFlag.REPLAYED, known.flag >> FLAG_BITS
        sequence = state.last_sequence + 1
        flag = store_item(state, queue, item, push)
        if key is not None:
            digest = b"" if key.window_us else digest_of(item.content)
            # As a flag it would be kept for ever, in the table of all members.
            known = KnownPush(int(flag) | sequence << FLAG_BITS, digest)
            state.expiry.at(state.keys.remember(key, known, state.now_us))
        return flag, sequence


def known_push(state: State, owner: bytes, name: bytes, key: bytes, group: bytes) -> KnownPush | None:
    """Return the push to a queue that a further one with this key would repeat, or None."""
    queue = state.queues.get(name)
    place = PushKey(owner, name, key) if queue is None else _push_key(queue, owner, key, group)
    return state.keys.find(place, state.now_us)


def _push_key(queue: Queue, owner: bytes, key: bytes, group: bytes) -> PushKey:
    """Return where the key of a push counts, by the properties that the queue has now."""
    options = queue.settings.options
    if options is None or options.key_window_us is None:
        return PushKey(owner, queue.name, key)
    identity = exact_key(key, group if options.keys_by_group else None)
    return PushKey(owner, queue.name, identity, options.key_window_us)


def store_item(state: State, queue: Queue, item: Item, push: Push = PLAIN_PUSH) -> int:
    """Store a message in a queue; return its flag."""
    meta = (item.content_type, attributes_kept(queue, item))
    return state.store(queue, meta, [item.content], push)[0]
