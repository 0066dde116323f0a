"""Reference cycles are detected by the memory that they hold; stored messages are not scanned for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from lmqcluster.node.process import garbage
from lmqcluster.node.process.garbage import FULL_GROWTH_BYTES, GROWTH_BYTES, THRESHOLDS, GarbageCollection


class Ring:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.ring = self


class Process:
    """The memory figures of the system and of the node."""

    def __init__(self) -> None:
        self.resident_bytes = 100
        self.accounted_bytes = 0

    def collection(self) -> GarbageCollection:
        return GarbageCollection(lambda: self.accounted_bytes, _aside)


async def _aside() -> None:
    """Do nothing: there is no leader."""


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """Stops automatic collection and freezes the imports of the tests."""
    made = Process()
    monkeypatch.setattr(garbage, "resident_bytes", lambda: made.resident_bytes)
    gc.collect()
    gc.disable()
    gc.freeze()
    yield made
    gc.unfreeze()
    gc.enable()


def test_unaccounted_memory_is_searched(process: Process) -> None:
    collection = process.collection()
    ring = ref(Ring())
    process.resident_bytes += GROWTH_BYTES
    assert not collection.look()
    assert ring() is not None
    process.resident_bytes += 1
    assert not collection.look()
    assert ring() is None


def test_accounted_memory_is_not_searched(process: Process) -> None:
    collection = process.collection()
    ring = ref(Ring())
    for _ in range(100):
        process.resident_bytes += GROWTH_BYTES
        process.accounted_bytes += GROWTH_BYTES
        assert not collection.look()
    assert ring() is not None


def test_growth_counts_from_the_minimum(process: Process) -> None:
    """Messages are counted with more than they take, so that they could hide garbage."""
    collection = process.collection()
    process.accounted_bytes += 10 * GROWTH_BYTES
    assert not collection.look()
    ring = ref(Ring())
    process.resident_bytes += GROWTH_BYTES + 1
    assert not collection.look()
    assert ring() is None


def test_frozen_objects_are_searched_when_memory_keeps_growing(process: Process) -> None:
    collection = process.collection()
    ring = ref(Ring())
    gc.freeze()
    while not collection.look():
        process.resident_bytes += GROWTH_BYTES
        assert ring() is not None
    assert process.resident_bytes > FULL_GROWTH_BYTES
    collection.collect_all()
    assert ring() is None
    assert gc.get_freeze_count() > 10_000


def test_a_search_of_everything_that_frees_little_is_not_repeated_soon(process: Process) -> None:
    collection = process.collection()
    process.resident_bytes += FULL_GROWTH_BYTES + 1
    assert collection.look()
    collection.collect_all()
    process.resident_bytes += FULL_GROWTH_BYTES + 1
    assert not collection.look()
    process.resident_bytes += FULL_GROWTH_BYTES
    assert collection.look()


def test_another_member_leads_before_everything_is_searched(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "PERIOD_S", 0.001)
    events: list[str] = []

    async def main() -> None:
        searched = asyncio.Event()

        async def aside() -> None:
            events.append("aside")

        collection = GarbageCollection(lambda: 0, aside)
        collect_all = collection.collect_all

        def collect() -> None:
            collect_all()
            events.append("searched")
            searched.set()

        monkeypatch.setattr(collection, "collect_all", collect)
        process.resident_bytes += FULL_GROWTH_BYTES + 1
        keeping = asyncio.create_task(collection.keep())
        await asyncio.wait_for(searched.wait(), 30)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping

    asyncio.run(main())
    assert events[:2] == ["aside", "searched"]
    assert not [one for one in gc.callbacks if getattr(one, "__self__", None).__class__ is GarbageCollection]


def test_the_oldest_generation_is_searched_and_its_survivors_are_frozen(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long-lived garbage is found, and few containers are scanned whatever amount is stored."""
    # On a machine of any speed.
    monkeypatch.setattr(garbage, "SET_ASIDE_S", 0.0)

    async def main() -> None:
        before = gc.get_threshold()
        keeping = asyncio.create_task(process.collection().keep())
        await asyncio.sleep(0)
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        try:
            stored, old = [], ref(Ring())
            # Python searches the oldest generation only once a quarter of the process's objects are new.
            for _ in range(60):
                stored += [[one] for one in range(THRESHOLDS[0] + 1)]
            assert old() is None
            # Stored objects are frozen; otherwise all of them would be scanned each time.
            assert len(gc.get_objects()) < len(stored) // 2
        finally:
            gc.disable()
            gc.set_threshold(*before)
            keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping

    asyncio.run(main())
