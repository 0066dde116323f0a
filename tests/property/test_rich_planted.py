"""Planted bugs in queue features beyond LMQ's: the comparison with the naive model must find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.core.dedup import exact_keys
from lmqcluster.core.dedup.exact_keys import ExactKeys
from lmqcluster.core.dedup.producers import Producers
from lmqcluster.core.dedup.refused_ranges import RefusedRanges
from lmqcluster.core.handlers import bulk, push_plan
from lmqcluster.core.log.commands import Place
from lmqcluster.core.log.results import PushFlag
from lmqcluster.core.messages.attributes import reasoned
from lmqcluster.core.messages.message import PLAIN_TRAITS, RichMessage, with_traits
from lmqcluster.core.queue import queue, rich_messages
from lmqcluster.core.queue.expiry import NEVER
from lmqcluster.core.queue.options import QueueOptions
from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.queue.rich_messages import RichLines
from lmqcluster.core.queue.store import MessageStore
from lmqcluster.core.routing import admission
from lmqcluster.core.routing.admission import Admission, Room, Targets
from lmqcluster.core.routing.dead_lettering import DeadLetterRouter
from lmqcluster.core.routing.waiting_pushes import WaitingPushes
from lmqcluster.core.sessions.locks import Locks
from lmqcluster.core.sessions.sessions import Sessions
from lmqcluster.core.snapshot import view
from lmqcluster.core.snapshot.records import Restoration
from lmqcluster.core.state import state as queue_state
from lmqcluster.core.timers import idle_queues

from . import planted
from .test_rich_machine import RichMachineAgainstModel
from .test_session_machine import SessionMachineAgainstModel

Plant = Callable[[pytest.MonkeyPatch], None]


def _wrapped(patch: pytest.MonkeyPatch, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def no_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichMessage, "place", lambda message: (0, message.due_us, message.sequence))


def plain_messages_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichLines, "can_deliver", lambda *_args: False)


def no_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichLines, "_line_up", lambda lines, message, _now_us: lines.waiting.add(message.place(), message))


def a_group_that_stops(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichLines, "_advance", lambda *_args: False)


def runs_over_one_in_flight(patch: pytest.MonkeyPatch) -> None:
    def take_behind(lines: RichLines, message: Any) -> Any:
        group = message.traits.group
        found = lines.held.first_from((group, message.place_us, message.sequence)) if group else None
        if found is None or found.traits.group != group:
            return None
        lines.take(found)
        return found

    patch.setattr(RichLines, "take_behind", take_behind)


def runs_of_any_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "_followers_max", lambda _queue: 1 << 30)


def delays_that_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    def schedule(lines: RichLines, message: Any) -> None:
        lines.scheduled.add((message.due_us, message.sequence), message)

    patch.setattr(RichLines, "_schedule", schedule)


def groups_that_keep_their_due_time(patch: pytest.MonkeyPatch) -> None:
    def advance(lines: RichLines, group: bytes, _now_us: int, _pre_images: Any) -> bool:
        head = lines._take_head(group)
        if head is not None:
            lines._make_head(head)
        return head is not None

    patch.setattr(RichLines, "_advance", advance)


def snapshots_without_places(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        view,
        "_traits_and_times",
        lambda one, _due_us, first_us, holds: (getattr(one, "traits", None), 0, first_us, holds),
    )


def expired_messages_delivered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "is_expired", lambda *_args: False)


def ages_forgotten_by_timers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "is_too_old", lambda *_args: False)
    patch.setattr(Queue, "next_timer_us", lambda one: one.store.enriched().next_us())


def ages_noticed_only_by_consumers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "aged_us", lambda _store: NEVER)


def ages_that_end_with_a_delivery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "with_traits", lambda message, _traits: with_traits(message, PLAIN_TRAITS))


def snapshots_that_forget_ages(patch: pytest.MonkeyPatch) -> None:
    original = Restoration._end_queue

    def end_queue(restoration: Restoration) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(MessageStore, "aged_us", lambda _store: NEVER)
            original(restoration)

    patch.setattr(Restoration, "_end_queue", end_queue)


def one_too_many(patch: pytest.MonkeyPatch) -> None:
    def limit_reached(one: Queue, options: QueueOptions, more_items: int = 0, _more_bytes: int = 0) -> str | None:
        is_open = options.max_items is None or one.store.waiting() + more_items <= options.max_items
        return None if is_open else f"max_items is {options.max_items}"

    patch.setattr(admission, "_limit_reached", limit_reached)


def leased_messages_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "waiting_bytes", lambda one: one.body_bytes)


def lost_dead_letters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetterRouter, "exhausted", lambda *_args: None)


def deliveries_without_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "is_used_up", lambda *_args: False)


def targets_made_for_used_up_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetterRouter, "lacks_target", lambda *_args: False)


def lost_when_sent_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetterRouter, "send", lambda *_args: None)


def reasons_that_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "reasoned", lambda message, reason: message.meta[1] or reasoned(message, reason))


def reasons_without_bytes(patch: pytest.MonkeyPatch) -> None:
    def explain(_queue: Queue, message: Any, reason: Any) -> None:
        message.meta = (message.meta[0], reasoned(message, reason))

    patch.setattr(Queue, "_explain", explain)


def no_retry_delay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueOptions, "retry_delay_after", lambda *_args: 0)


def the_head_is_the_tail(patch: pytest.MonkeyPatch) -> None:
    def place(original: Any, one: Queue, message: Any, now_us: int, where: Place, delay_us: int | None) -> None:
        original(one, message, now_us, Place.TAIL if where is Place.HEAD else where, delay_us)

    _wrapped(patch, Queue, "_place", place)


def no_copies(patch: pytest.MonkeyPatch) -> None:
    def targets(original: Any, one: Admission, target: Queue) -> Targets:
        found: Targets = original(one, target)
        return found._replace(copies=[])

    _wrapped(patch, Admission, "targets", targets)


def half_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "take", lambda *_args: PushFlag.STORED)


def transactions_that_forget_what_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(push_plan.PushPlan, "nack", lambda *_args: None)


def labels_of_leased_messages(patch: pytest.MonkeyPatch) -> None:
    def withdraw(original: Any, one: Queue, messages: Any, now_us: int) -> None:
        original(one, list(messages)[:-1], now_us)

    _wrapped(patch, Queue, "remove", withdraw)


def sequences_that_do_not_count(patch: pytest.MonkeyPatch) -> None:
    _wrapped(patch, bulk, "returnable", lambda original, *arguments: original(*arguments[:4]))


def sequences_without_their_label(patch: pytest.MonkeyPatch) -> None:
    def moved(original: Any, lines: RichLines, label: bytes, limit: int, sequences: Any = None) -> Any:
        return original(lines, label if sequences is None else b"", limit, sequences)

    _wrapped(patch, RichLines, "moved", moved)


def sequences_in_the_order_given(patch: pytest.MonkeyPatch) -> None:
    def numbered(index: Any, label: bytes, sequences: Any) -> Any:
        given = [number for number in dict.fromkeys(sequences) if number >= 0]
        return [message for number in given for message in index.between((label, number), (label, number + 1))]

    patch.setattr(rich_messages, "_numbered", numbered)


def snapshots_without_what_is_scheduled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RichLines, "lines", lambda lines: [("waiting", lines.waiting), ("held", lines.held)])


def returned_bytes_still_leased(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue.Queue, "_unlease", lambda *_args: None)


def sessions_that_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "due_us", lambda *_args: None)
    patch.setattr(Sessions, "expire", lambda *_args: 0)


def newest_first(patch: pytest.MonkeyPatch) -> None:
    def release(_original: Any, one: Queue, now_us: int, numbers: list[int]) -> None:
        one.nack(now_us, numbers, Place.TAIL, 0)

    _wrapped(patch, Queue, "release", release)


def every_session_has_a_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "is_exclusive", lambda *_args: False)


def responses_that_stay_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "held_after", lambda *_args: [])


def the_dead_hold_locks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Locks, "leave_some", lambda *_args: 0)


def a_token_given_twice(patch: pytest.MonkeyPatch) -> None:
    def grant(one: Locks, name: bytes) -> None:
        one._tokens[name] = max(1, one.last_token)
        one.last_token = one._tokens[name]

    patch.setattr(Locks, "_grant", grant)


def pushes_that_overtake(patch: pytest.MonkeyPatch) -> None:
    def refusal(original: Any, one: Queue, *arguments: Any) -> Any:
        waiting, one.pushes_waiting = one.pushes_waiting, 0
        try:
            return original(one, *arguments)
        finally:
            one.pushes_waiting = waiting

    _wrapped(patch, admission, "_refusal", refusal)


def room_that_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    def rich_due(original: Any, one: Queue, *arguments: Any, **options: Any) -> Any:
        waiting, one.pushes_waiting = one.pushes_waiting, 0
        try:
            return original(one, *arguments, **options)
        finally:
            one.pushes_waiting = waiting

    _wrapped(patch, Queue, "_rich_due", rich_due)


def waits_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitingPushes, "expire", lambda *_args: 0)


def the_last_comes_first(patch: pytest.MonkeyPatch) -> None:
    def first(one: WaitingPushes, queue: bytes) -> Any:
        line = one._lines.get(queue)
        return None if line is None else one._pushes[max(line)]

    patch.setattr(WaitingPushes, "first", first)


def numbers_that_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    _wrapped(patch, Producers, "admit", lambda original, *arguments: original(*arguments) * 0)


def refused_numbers_taken_for_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RefusedRanges, "note", lambda *_args: None)


def refused_numbers_stored_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RefusedRanges, "stored", lambda *_args: None)


def keys_that_end_too_late(patch: pytest.MonkeyPatch) -> None:
    def remember(original: Any, one: ExactKeys, *row: Any) -> None:
        original(one, *row[:-1], row[-1] + 1)

    _wrapped(patch, ExactKeys, "remember", remember)


def keys_that_a_repetition_prolongs(patch: pytest.MonkeyPatch) -> None:
    def find(original: Any, one: ExactKeys, queue: bytes, key: bytes, now_us: int) -> Any:
        flag = original(one, queue, key, now_us)
        if flag is not None:
            row = one._tables[queue].known[key]
            one._tables[queue].known[key] = row._replace(ends_us=row.ends_us + 1)
        return flag

    _wrapped(patch, ExactKeys, "find", find)


def keys_of_all_groups_together(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(push_plan, "exact_key", lambda key, _group: exact_keys.exact_key(key, None))


def keys_that_outlive_a_purge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_state.State, "forget_keys", lambda *_args: None)


def children_without_their_parents(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_state, "inheritable", lambda _own: {})


def children_that_are_not_updated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_state.State, "_refresh_children", lambda *_args: None)


def held_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueOptions, "open_us", None)


SESSION_PLANTS: list[Plant] = [
    held_for_ever,
    sessions_that_never_end,
    newest_first,
    every_session_has_a_turn,
    responses_that_stay_lost,
    the_dead_hold_locks,
    a_token_given_twice,
    pushes_that_overtake,
    room_that_is_not_noted,
    waits_without_end,
    the_last_comes_first,
]
PLANTS: list[Plant] = [
    no_priority,
    plain_messages_first,
    no_groups,
    a_group_that_stops,
    runs_over_one_in_flight,
    runs_of_any_length,
    delays_that_hold_nothing,
    groups_that_keep_their_due_time,
    snapshots_without_places,
    expired_messages_delivered,
    ages_forgotten_by_timers,
    ages_noticed_only_by_consumers,
    ages_that_end_with_a_delivery,
    snapshots_that_forget_ages,
    one_too_many,
    leased_messages_counted,
    lost_dead_letters,
    deliveries_without_limit,
    targets_made_for_used_up_messages,
    lost_when_sent_back,
    reasons_that_stay,
    reasons_without_bytes,
    no_retry_delay,
    the_head_is_the_tail,
    no_copies,
    half_transactions,
    transactions_that_forget_what_comes_back,
    labels_of_leased_messages,
    sequences_that_do_not_count,
    sequences_without_their_label,
    sequences_in_the_order_given,
    snapshots_without_what_is_scheduled,
    returned_bytes_still_leased,
    numbers_that_are_not_remembered,
    refused_numbers_taken_for_stored,
    refused_numbers_stored_again,
    keys_that_end_too_late,
    keys_that_a_repetition_prolongs,
    keys_of_all_groups_together,
    keys_that_outlive_a_purge,
    children_without_their_parents,
    children_that_are_not_updated,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_found(RichMachineAgainstModel, plant, monkeypatch)


@pytest.mark.parametrize("plant", SESSION_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_in_sessions_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_found(SessionMachineAgainstModel, plant, monkeypatch)


def _check_found(machine: type[RichMachineAgainstModel], plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_queues, "KEEP_US", 1 << 60)
    plant(monkeypatch)
    # A plant that is itself broken shows as an error of another kind. A restart refuses a snapshot that contradicts itself.
    with pytest.raises((AssertionError, ValueError)):
        planted.run(machine)
