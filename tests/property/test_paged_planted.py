"""Planted bugs in paged bodies: the comparisons must find each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmqcluster.core import machine
from lmqcluster.core.messages import bodies
from lmqcluster.core.messages.bodies import Body, BodyChunk, BodyTail, QueueBodies
from lmqcluster.core.queue import store as queue_contents
from lmqcluster.core.queue.pager import Pager
from lmqcluster.core.queue.store import MessageStore
from lmqcluster.core.snapshot.loaded_bodies import LoadedBodies
from lmqcluster.core.timers import idle_queues

from . import planted
from .test_paged_bodies import PagedBodiesAgainstModel, shrink

Plant = Callable[[pytest.MonkeyPatch], None]


def bodies_that_never_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "release_bodies", lambda *_args: None)


def the_wrong_body_of_a_page(patch: pytest.MonkeyPatch) -> None:
    def read(body: Body) -> bytes:
        home = body.home
        if body.data is not None:
            return body.data
        assert isinstance(home, BodyChunk)
        return home.bodies()[body.place - 1]

    patch.setattr(Body, "read", read)


def what_was_read_for_another_chunk(patch: pytest.MonkeyPatch) -> None:
    original = Pager.bodies_in

    def bodies_in(common: Pager, chunk: BodyChunk) -> list[bytes]:
        others = [found for found in common._read_back.values() if len(found) == len(chunk.sizes)]
        return others[0] if others else original(common, chunk)

    patch.setattr(Pager, "bodies_in", bodies_in)


def bodies_that_stay_behind_when_a_message_moves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_contents, "loaded", lambda content: content)


def gathered_again_in_another_order(patch: pytest.MonkeyPatch) -> None:
    def gather_again(gathered: QueueBodies, chunk: BodyChunk) -> None:
        found = chunk.bodies()
        gathered._drop(chunk)
        for place, body in enumerate(chunk.lives):
            if body is not None:
                body.data = found[0]
                gathered._add(gathered.again, body, chunk.first + place)

    patch.setattr(QueueBodies, "gather_again", gather_again)


def waste_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pager, "gather_again", lambda common, _touched: common.sparse.clear())


def chunks_that_depend_on_memory(patch: pytest.MonkeyPatch) -> None:
    original = QueueBodies._tail

    def tail(gathered: QueueBodies, key: bodies.Key) -> BodyTail:
        is_paged = any(not chunk.is_here() for chunk in gathered.chunks)
        return original(gathered, (0, 0) if is_paged else key)

    patch.setattr(QueueBodies, "_tail", tail)


def snapshots_that_forget_tails(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueBodies, "frozen_tails", lambda _gathered: [])


def snapshots_that_forget_what_they_gather_again(patch: pytest.MonkeyPatch) -> None:
    original = QueueBodies.load_tail
    patch.setattr(
        QueueBodies, "load_tail", lambda gathered, key, first: original(gathered, (0, 0) if key is None else key, first)
    )


def numbers_that_are_one_too_high(patch: pytest.MonkeyPatch) -> None:
    original = LoadedBodies.body

    def body(loading: LoadedBodies, number: int) -> Body:
        return original(loading, number + 1 if number + 1 < loading._count else number)

    patch.setattr(LoadedBodies, "body", body)


def pages_that_are_not_announced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "pages_ahead", lambda *_args: [])


PLANTS: list[Plant] = [
    pages_that_are_not_announced,
    bodies_that_never_leave,
    the_wrong_body_of_a_page,
    what_was_read_for_another_chunk,
    bodies_that_stay_behind_when_a_message_moves,
    gathered_again_in_another_order,
    waste_without_end,
    chunks_that_depend_on_memory,
    snapshots_that_forget_tails,
    snapshots_that_forget_what_they_gather_again,
    numbers_that_are_one_too_high,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_queues, "KEEP_US", 1 << 60)
    shrink(monkeypatch)
    plant(monkeypatch)
    # Some of them show when a damaged snapshot is refused.
    with pytest.raises((AssertionError, ValueError)):
        planted.run(PagedBodiesAgainstModel)
