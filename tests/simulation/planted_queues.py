"""Bugs in queue features beyond push, pull and ack. Each is a patch for the duration of a run, as in `switches`."""

from __future__ import annotations

from typing import Any

from lmqcluster.core.dedup.exact_keys import ExactKeys
from lmqcluster.core.handlers.transactions import Transactions
from lmqcluster.core.log.commands import Place
from lmqcluster.core.log.results import Delivered, TagState
from lmqcluster.core.messages.attributes import Reason, reasoned
from lmqcluster.core.messages.message import Message, RichMessage
from lmqcluster.core.queue import queue
from lmqcluster.core.queue.delivery_limits import DeliveryLimits
from lmqcluster.core.queue.fair_groups import FairGroups, Group
from lmqcluster.core.queue.options import QueueOptions
from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.queue.rates import Rate
from lmqcluster.core.queue.rich_messages import RichLines
from lmqcluster.core.queue.store import MessageStore
from lmqcluster.core.routing import admission
from lmqcluster.core.routing.admission import Admission, Push, Room, Targets
from lmqcluster.core.routing.dead_lettering import DeadLetterRouter
from lmqcluster.core.snapshot import view
from lmqcluster.core.state.state import State
from tests.simulation.switches import switch

__all__ = ["PLANTED_QUEUES"]

_put = Admission._put
_targets = Admission.targets
_allowed = DeliveryLimits.allowed
_place = Queue._place
_remove = Queue.remove
_settle = Transactions._settle
_send = DeadLetterRouter.send
_take_head = RichLines._take_head
_remember = ExactKeys.remember


def _traits_of(message: Message) -> Any:
    return message.traits if isinstance(message, RichMessage) else None


def _at_once(self: Admission, queue: Queue, meta: Any, content: bytes, push: Push) -> int:
    return _put(self, queue, meta, content, push._replace(delay_us=-1))


def _for_ever(self: Admission, queue: Queue, meta: Any, content: bytes, push: Push) -> int:
    return _put(self, queue, meta, content, push._replace(ttl_us=0))


def _all_in_line(self: RichLines, message: RichMessage, _now_us: int) -> None:
    self.waiting.add(message.place(), message)


def _last_of_group(self: RichLines, group: bytes) -> RichMessage | None:
    """Make the message of the group that arrived last its head."""
    first = _take_head(self, group)
    others = list(self.held.between((group,), (group + b"\0",)))
    if first is None or not others:
        return first
    self.held.remove(others[-1].group_place())
    self.held.add(first.group_place(), first)
    return others[-1]


def _whatever_is_behind(self: RichLines, message: RichMessage) -> RichMessage | None:
    """Take the next message of the group even if there is one in flight between them."""
    group = message.traits.group
    following = self.held.first_from((group, message.place_us, message.sequence + 1)) if group else None
    if following is None or following.traits.group != group:
        return None
    self.take(following)
    return following


def _first_reason(message: Message, reason: Reason | None) -> bytes:
    """Keep the first reason of a message."""
    return message.meta[1] or reasoned(message, reason)


def _never_late(self: Queue, _now_us: int, sequence: int, tag: int) -> Any:
    named = self._named(sequence, tag)
    return (TagState.GONE if named is None else TagState.VALID), named


def _one_too_many(queue: Queue, options: QueueOptions, more_items: int = 0, more_bytes: int = 0) -> str | None:
    is_full = options.max_items is not None and queue.store.waiting() + more_items > options.max_items
    return "max_items is reached" if is_full else None


def _one_too_many_in_flight(self: DeliveryLimits, now_us: int, already: int = 0) -> int:
    return _allowed(self, now_us, already) + 1


def _above_limit(self: FairGroups, group: Group) -> bool:
    most = self.limits.in_flight_max
    return most is not None and group.in_flight > most


def _twice(self: DeadLetterRouter, queue: Queue, message: RichMessage, destination: bytes) -> None:
    _send(self, queue, message, destination)
    _send(self, queue, message, destination)


def _not_to_the_head(self: Queue, message: Message, now_us: int, place: Place, delay_us: int | None) -> None:
    _place(self, message, now_us, Place.TAIL if place is Place.HEAD else place, delay_us)


def _not_later(self: Queue, message: Message, now_us: int, place: Place, delay_us: int | None) -> None:
    _place(self, message, now_us, place, 0)


def _all_but_one(self: Queue, messages: Any, now_us: int) -> None:
    _remove(self, list(messages)[:-1], now_us)


def _without_copies(self: Admission, queue: Queue) -> Targets:
    return _targets(self, queue)._replace(copies=[])


def _only_leased(self: Queue, now_us: int, count: int, last_number: int) -> list[Delivered]:
    return self.lease(now_us, count, last_number, now_us + self.settings.timeout_us)


def _settling_what_is_gone(self: Transactions, plan: Any, used: set[int], step: Any) -> Any:
    queue = self._state.existing(step.queue)
    if queue is None or queue.live(step.numbers[0], self._state.now_us) is None:
        return lambda: True
    return _settle(self, plan, used, step)


def _too_short(self: ExactKeys, queue: bytes, key: bytes, owner: bytes, flag: int, ends_us: int) -> None:
    _remember(self, queue, key, owner, flag, ends_us - 1_000_000)


PLANTED_QUEUES = {
    "delays ignored": switch([(Admission, "_put", _at_once)]),
    "time to live ignored": switch([(Admission, "_put", _for_ever)]),
    "priorities ignored": switch([(RichMessage, "place", lambda self: (0, self.due_us, self.sequence))]),
    "labels half withdrawn": switch([(Queue, "remove", _all_but_one)]),
    "groups ignored": switch([(RichLines, "_line_up", _all_in_line)]),
    "one too many in flight": switch([(DeliveryLimits, "allowed", _one_too_many_in_flight)]),
    "one too many of a group in flight": switch([(FairGroups, "_is_at_limit", _above_limit)]),
    "rates ignored": switch([(Rate, "available", lambda *_: 1 << 30)]),
    "turns by age": switch([(Group, "key", lambda self: (0, -self.turn))]),
    "last of a group first": switch([(RichLines, "_take_head", _last_of_group)]),
    "runs of any length": switch([(Queue, "_followers_max", lambda _: 1 << 30)]),
    "runs over one in flight": switch([(RichLines, "take_behind", _whatever_is_behind)]),
    "tags that do not expire": switch([(Queue, "_state_of", _never_late)]),
    "one too many in a full queue": switch([(admission, "_limit_reached", _one_too_many)]),
    "deliveries without limit": switch([(MessageStore, "is_used_up", lambda *_: False)]),
    "dead letters lost": switch([(DeadLetterRouter, "exhausted", lambda *_: None)]),
    "expired messages lost": switch([(DeadLetterRouter, "expired", lambda *_: None)]),
    "redriven messages lost": switch([(DeadLetterRouter, "send", lambda *_: None)]),
    "redriven messages doubled": switch([(DeadLetterRouter, "send", _twice)]),
    "head taken for the tail": switch([(Queue, "_place", _not_to_the_head)]),
    "first reason kept": switch([(queue, "reasoned", _first_reason)]),
    "retry delays ignored": switch([(Queue, "_place", _not_later)]),
    "no copies for bound queues": switch([(Admission, "targets", _without_copies)]),
    "settled pulls only leased": switch([(Queue, "pull_settled", _only_leased)]),
    "transactions push into full queues": switch([(Room, "take", lambda *_: None)]),
    "transactions settle what is gone": switch([(Transactions, "_settle", _settling_what_is_gone)]),
    "keys end too early": switch([(ExactKeys, "remember", _too_short)]),
    "purges keep keys": switch([(State, "forget_keys", lambda *_: None)]),
    "snapshots without places in groups": switch(
        [(view, "_traits_and_times", lambda one, _, first_us, holds: (_traits_of(one), 0, first_us, holds))]
    ),
    "snapshots without exact keys": switch([(ExactKeys, "rows", lambda _: iter(()))]),
    "snapshots without what is not due": switch(
        [(RichLines, "lines", lambda self: [("waiting", self.waiting), ("held", self.held)])]
    ),
}
"""By name, the context manager of each bug."""
