"""Planted bugs in queues whose messages are named by id and tag: the comparison with the model must find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.core.dedup.attempts import Attempts
from lmqcluster.core.handlers import push
from lmqcluster.core.messages.message import Identity, RichMessage
from lmqcluster.core.queue import queue
from lmqcluster.core.queue.limits import PollLimits
from lmqcluster.core.queue.message_index import MessageIndex
from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.queue.rich_messages import RichLines
from lmqcluster.core.routing import dead_lettering
from lmqcluster.core.timers import idle_queues

from . import planted
from .test_polled_machine import PolledMachineAgainstModel

Plant = Callable[[pytest.MonkeyPatch], None]


def tags_that_do_not_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageIndex, "number", lambda index, sequence, _tag: index._numbers.get(sequence, 0))


def late_consumers_refused(patch: pytest.MonkeyPatch) -> None:
    original = Queue._named

    def named(one: Queue, sequence: int, tag: int) -> Any:
        found = original(one, sequence, tag)
        return found if found is None or not tag or found.number in one.store.leases.messages else None

    patch.setattr(Queue, "_named", named)


def an_old_tag_after_an_lmq_pull(patch: pytest.MonkeyPatch) -> None:
    original = MessageIndex.delivered

    def delivered(index: MessageIndex, messages: Any, first: int) -> None:
        original(index, [one for one in messages if one.sequence not in index._numbers], first)

    patch.setattr(MessageIndex, "delivered", delivered)


def numbers_kept_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageIndex, "on_removed", lambda *_args: None)


def snapshots_without_numbers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageIndex, "frozen", lambda _index: [])


def a_window_that_never_rolls_over(patch: pytest.MonkeyPatch) -> None:
    def has_room(limits: PollLimits, _now_us: int) -> bool:
        return limits.throttle is None or limits._taken < limits.throttle[0]

    patch.setattr(PollLimits, "has_room", has_room)


def groups_two_at_a_time(patch: pytest.MonkeyPatch) -> None:
    def take_scheduled(lines: RichLines) -> Any:
        message = lines.scheduled.first()
        if message is not None:
            lines.take(message)
        return message

    patch.setattr(RichLines, "take_scheduled", take_scheduled)


def late_consumers_of_groups_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichLines, "is_ordered", lambda *_args: False)


def delayed_messages_overtaken(patch: pytest.MonkeyPatch) -> None:
    def arrive(lines: RichLines, message: Any, now_us: int) -> None:
        lines.on_added(message)
        lines.enter(message, now_us)

    patch.setattr(RichLines, "arrive", arrive)


def first_deliveries_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = RichLines.delivered

    def delivered(lines: RichLines, messages: Any, number: int, now_us: int) -> None:
        for message in messages:
            if isinstance(message, RichMessage):
                message.first_us = 0
        original(lines, messages, number, now_us)

    patch.setattr(RichLines, "delivered", delivered)


def only_the_last_queue_counts(patch: pytest.MonkeyPatch) -> None:
    def identity_of(message: Any) -> Identity:
        return Identity(message.sequence, message.pushed_us, message.delivered, getattr(message, "first_us", 0))

    patch.setattr(dead_lettering, "identity_of", identity_of)


def attempts_that_end_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(push, "ATTEMPT_US", 299_999_999)


def attempts_that_a_repetition_prolongs(patch: pytest.MonkeyPatch) -> None:
    original = Attempts.find

    def find(one: Attempts, owner: bytes, key: bytes, now_us: int) -> Any:
        found = original(one, owner, key, now_us)
        if found is not None:
            one.remember(owner, [(key, found)], now_us + 300_000_000)
        return found

    patch.setattr(Attempts, "find", find)


def attempts_of_all_owners_together(patch: pytest.MonkeyPatch) -> None:
    original = Attempts.find

    def find(one: Attempts, owner: bytes, key: bytes, now_us: int) -> Any:
        found = (original(one, each, key, now_us) for each in dict.fromkeys((owner, *one._owned)))
        return next((numbers for numbers in found if numbers is not None), None)

    patch.setattr(Attempts, "find", find)


def messages_of_sqs_named_before_their_delivery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "KIND", "")


def messages_of_sqs_that_stay_plain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "with_traits", lambda message, _traits: message)
    patch.setattr(RichLines, "on_added", lambda *_args: None)


PLANTS = [
    attempts_that_end_early,
    attempts_that_a_repetition_prolongs,
    attempts_of_all_owners_together,
    messages_of_sqs_named_before_their_delivery,
    messages_of_sqs_that_stay_plain,
    first_deliveries_forgotten,
    only_the_last_queue_counts,
    late_consumers_of_groups_accepted,
    delayed_messages_overtaken,
    tags_that_do_not_fence,
    late_consumers_refused,
    an_old_tag_after_an_lmq_pull,
    numbers_kept_for_ever,
    snapshots_without_numbers,
    a_window_that_never_rolls_over,
    groups_two_at_a_time,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_queues, "KEEP_US", 1 << 60)
    plant(monkeypatch)
    # A plant that is itself broken shows as an error of another kind.
    with pytest.raises(AssertionError):
        planted.run(PolledMachineAgainstModel)
