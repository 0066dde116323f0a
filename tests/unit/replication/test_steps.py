"""Steps: stored data is on the disk before any message that promises it leaves, and the core moves only then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from pysyncobj import syncobj as library

from lmqcluster.replication.steps import DISK_PATIENCE_S, STALL_S, TICK_S, Steps
from lmqcluster.replication.storage.io.worker import ThreadWorker
from lmqcluster.replication.storage.journal.disk_journal import DiskJournal
from tests.simulation.disk import SimDisk
from tests.unit.replication.test_disk_journal import open_journal


class Member:
    """A member that stores its input, and records the order of its actions."""

    def __init__(self, *, waits_for_disk: bool = True) -> None:
        self.disk = SimDisk(random.Random(1))
        self.journal: DiskJournal = open_journal(self.disk)
        self.happened: list[str] = []
        self.to_store: list[bytes] = []
        self.to_append: list[bytes] = []
        self.more = 0
        self.still_s: list[float] = []
        self.input_takes: Callable[[], None] = lambda: None
        self.error: Exception | None = None
        self.finished = asyncio.Event()
        worker = ThreadWorker("journal") if waits_for_disk else None
        self.steps = Steps(self, self.journal, self, worker)  # type: ignore[arg-type]

    def take_input(self) -> None:
        self.happened.append("input")
        self.input_takes()
        self._add(self.to_store)

    def advance(self) -> None:
        self.happened.append("advance")
        self._add(self.to_append)

    def on_event_loop_stall(self, seconds: float) -> None:
        self.still_s.append(seconds)

    def keep_alive(self) -> None:
        self.happened.append("alive")

    def finish(self) -> bool:
        self.happened.append("finish")
        self.finished.set()
        self.more -= 1
        return self.more >= 0

    def failed(self, error: Exception) -> None:
        self.happened.append("failed")
        self.error = error
        self.finished.set()
        self.steps.stop()

    def flush(self, *, synced: bool = True) -> None:
        assert not (synced and self.journal.dirty)
        self.happened.append("promises" if synced else "entries")

    def _add(self, commands: list[bytes]) -> None:
        while commands:
            self.journal.add(commands.pop(0), self.journal.last_index + 1, 1)

    async def step(self) -> list[str]:
        """Wake the member and wait for the end of the step; return its actions."""
        self.finished.clear()
        self.happened.clear()
        self.steps.wake()
        await self.finished.wait()
        return self.happened


def run(scenario: Callable[[Member], Awaitable[None]], *, waits_for_disk: bool = True) -> None:
    """Run a scenario of one member."""

    async def main() -> None:
        member = Member(waits_for_disk=waits_for_disk)
        try:
            await scenario(member)
        finally:
            member.steps.stop()
            member.steps.close()
            member.journal.close()

    asyncio.run(main())


def test_a_follower_answers_after_the_sync_and_before_it_applies() -> None:
    async def scenario(member: Member) -> None:
        member.to_store = [b"\x00stored"]
        assert await member.step() == ["input", "entries", "promises", "advance", "promises", "finish"]
        assert member.steps.syncs_total == 1
        assert member.steps.sync_durations.cumulative()[-1] == 1

    run(scenario)


def test_entries_of_a_leader_leave_before_its_own_sync() -> None:
    async def scenario(member: Member) -> None:
        member.to_append = [b"\x00appended"]
        assert await member.step() == ["input", "advance", "entries", "promises", "promises", "finish"]

    run(scenario)


def test_nothing_is_synced_if_nothing_was_stored() -> None:
    async def scenario(member: Member) -> None:
        assert await member.step() == ["input", "advance", "promises", "finish"]
        assert member.steps.syncs_total == 0

    run(scenario)


def test_the_core_waits_during_a_sync_and_continues_after_it() -> None:
    async def scenario(member: Member) -> None:
        member.to_store = [b"\x00stored"]
        member.steps.step()
        assert member.steps.is_syncing
        member.steps.step()
        assert member.happened == ["input", "entries", "alive", "entries"]
        await member.finished.wait()
        member.finished.clear()
        await member.finished.wait()
        assert member.happened[-4:] == ["input", "advance", "promises", "finish"]

    run(scenario)


def test_a_step_that_leaves_work_is_followed_by_another_one() -> None:
    async def scenario(member: Member) -> None:
        member.more = 1
        await member.step()
        member.finished.clear()
        await member.finished.wait()
        assert member.happened.count("finish") == 2

    run(scenario)


def test_without_a_disk_to_wait_for_the_journal_is_written_at_once() -> None:
    async def scenario(member: Member) -> None:
        member.to_store = [b"\x00stored"]
        assert await member.step() == ["input", "promises", "advance", "promises", "finish"]
        assert member.steps.syncs_total == 0

    run(scenario, waits_for_disk=False)


def test_a_disk_that_fails_ends_everything_before_a_promise() -> None:
    async def scenario(member: Member) -> None:
        member.disk.full = True
        member.to_store = [bytes(100_000)]
        happened = await member.step()
        assert happened == ["input", "entries", "failed"]
        assert isinstance(member.error, OSError)
        member.steps.wake()
        await asyncio.sleep(0)
        assert happened[-1] == "failed"

    run(scenario)


class HeldWorker:
    """A worker that the test controls."""

    def __init__(self) -> None:
        self.done: Callable[[Exception | None], None] | None = None
        self.work: Callable[[], None] | None = None

    def run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.work, self.done = work, done

    def close(self) -> None:
        pass


class SlowJournal(DiskJournal):
    """A journal whose disk reports progress when the test says so."""

    pieces = 0

    @property
    def progress(self) -> int:
        return self.pieces


class Clock:
    """A clock that only the test advances."""

    now_s = 100.0

    def advance_by(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(library, "monotonicTime", lambda: clock.now_s)
    return clock


def test_a_member_sends_heartbeats_while_its_disk_makes_progress(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    async def scenario(member: Member) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now_s)
        member.journal.__class__ = SlowJournal
        journal, worker = member.journal, HeldWorker()
        assert isinstance(journal, SlowJournal)
        member.steps = Steps(member, journal, member, worker)  # type: ignore[arg-type]
        member.to_store = [b"\x00stored"]
        member.steps.step()

        def shows_life() -> bool:
            member.happened.clear()
            member.steps.step()
            return "alive" in member.happened

        def turn(seconds: float) -> None:
            for _ in range(round(seconds / TICK_S)):
                clock.advance_by(TICK_S)
                member.steps.step()

        assert shows_life()
        turn(DISK_PATIENCE_S - 0.1)
        assert shows_life()
        journal.pieces += 1
        assert shows_life()
        turn(DISK_PATIENCE_S - 0.1)
        assert shows_life()
        turn(0.2)
        assert not shows_life()
        journal.pieces += 1
        assert shows_life()
        assert worker.work is not None
        assert worker.done is not None
        worker.work()
        worker.done(None)
        assert not shows_life()

    run(scenario)


def test_a_stall_is_reported_before_the_core_moves(clock: Clock) -> None:
    """Between two steps, or during one: the input may have taken long to store."""

    async def scenario(member: Member) -> None:
        member.steps = Steps(member, member.journal, member, None)  # type: ignore[arg-type]
        member.steps.step()
        for _ in range(100):
            clock.advance_by(STALL_S - TICK_S)
            member.steps.step()
        assert not member.still_s
        clock.advance_by(1.5)
        member.steps.step()
        assert member.still_s == [1.5]
        member.input_takes = lambda: clock.advance_by(0.75)
        member.steps.step()
        assert member.still_s == [1.5, 0.75]

    run(scenario)


def test_a_disk_is_not_blamed_for_a_stall_of_the_member(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    async def scenario(member: Member) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now_s)
        member.steps = Steps(member, member.journal, member, HeldWorker())  # type: ignore[arg-type]
        member.to_store = [b"\x00stored"]
        member.steps.step()
        clock.advance_by(2 * DISK_PATIENCE_S)
        member.happened.clear()
        member.steps.step()
        assert "alive" in member.happened

    run(scenario)


def test_work_given_to_the_disk_after_a_stall_does_not_extend_the_wait(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async def scenario(member: Member) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now_s)
        member.steps = Steps(member, member.journal, member, HeldWorker())  # type: ignore[arg-type]
        member.to_store = [b"\x00stored"]
        member.input_takes = lambda: clock.advance_by(2 * DISK_PATIENCE_S)
        member.steps.step()
        for _ in range(round(DISK_PATIENCE_S / TICK_S) + 5):
            clock.advance_by(TICK_S)
            member.happened.clear()
            member.steps.step()
        assert "alive" not in member.happened

    run(scenario)
