"""Writes that are repeated with other partitions until they are finished: every row is stored once."""

from __future__ import annotations

import random
from collections import Counter
from hashlib import blake2b
from typing import Any

import pytest

from lmqcluster.core import Fault, Op, PushFlag
from lmqcluster.core.dedup.epochs import FINISHED_MAX, Epochs
from lmqcluster.core.dedup.stream_positions import StreamPositions
from lmqcluster.core.owners.quotas import Kind, Quotas
from tests.property.driver import SECOND, Driver, copied, records

Q, JOB, SEED = b"q", b"job", b"s" * 16
STORED, CLAIMED = PushFlag.STORED, PushFlag.REPLAYED


def digest(row: bytes) -> bytes:
    """Return the identity of a row."""
    return blake2b(row, digest_size=16).digest()


def total(rows: list[bytes]) -> bytes:
    """Return the sum of the rows' digests."""
    return (sum(int.from_bytes(digest(row), "big") for row in rows) % (1 << 128)).to_bytes(16, "big")


class Writer:
    """The commands of one run."""

    def __init__(self, driver: Driver, run: bytes, epoch: int = 0, owner: bytes = b"a") -> None:
        self.driver = driver
        self.run = run
        self.epoch = epoch
        self.owner = owner

    def begin(self) -> Any:
        """Begin, with as many commands as it takes."""
        while (state := self.driver.batch([Op.BEGIN_EPOCH, JOB, self.epoch, self.run, SEED, self.owner])[0]) == 1:
            pass
        return state

    def push(self, first: int, *rows: bytes, stream: bytes = b"0") -> Any:
        """Push rows of a stream; return the flags."""
        items, note = [[row, None, b""] for row in rows], b"".join(map(digest, rows))
        where = [JOB, stream, first, note, False, self.owner, self.epoch, self.run]
        return self.driver.batch([Op.PUSH_STREAM, Q, items, *where])[0]

    def finish(self, *rows: bytes) -> Any:
        """Finish with these rows."""
        what = [JOB, self.epoch, self.run, len(rows), total(list(rows)), self.owner]
        return self.driver.batch([Op.FINISH_EPOCH, *what])[0]


@pytest.fixture
def driver() -> Driver:
    """A machine."""
    return Driver()


def code(result: Any) -> str | None:
    """Return the code of a refusal."""
    return result.code if isinstance(result, Fault) else None


def test_rows_of_an_earlier_run_are_claimed_in_any_stream(driver: Driver) -> None:
    one, two = Writer(driver, b"one"), Writer(driver, b"two")
    assert one.begin() == 0
    assert one.push(0, b"a", b"b", b"c") == [STORED] * 3
    assert two.begin() == 0
    assert two.push(0, b"x", b"b", stream=b"7") == [STORED, CLAIMED]
    assert two.push(0, b"c", b"a", b"a", stream=b"8") == [CLAIMED, CLAIMED, STORED]
    assert two.finish(b"a", b"a", b"b", b"c", b"x") is True
    assert sorted(driver.drain(Q)) == [b"a", b"a", b"b", b"c", b"x"]


def test_a_finished_epoch_stores_nothing_and_compares(driver: Driver) -> None:
    one, two = Writer(driver, b"one"), Writer(driver, b"two")
    one.begin()
    one.push(0, b"a", b"b")
    assert one.finish(b"a", b"b") is True
    assert [two.begin(), two.finish(b"b", b"a"), one.finish(b"a", b"b")] == [2, True, True]
    assert [code(two.finish(b"a", b"c")), code(two.finish(b"a")), code(two.push(0, b"c"))] == ["epoch_conflict"] * 3
    assert driver.drain(Q) == [b"a", b"b"]


def test_other_rows_do_not_finish(driver: Driver) -> None:
    one, two = Writer(driver, b"one"), Writer(driver, b"two")
    one.begin()
    one.push(0, b"a", b"b")
    two.begin()
    two.push(0, b"a", b"c")
    refused = two.finish(b"a", b"c")
    assert (code(refused), "2 of them are stored, but all attempts together have stored 3" in refused.reason) == (
        "epoch_conflict",
        True,
    )
    three = Writer(driver, b"three")
    three.begin()
    assert three.push(0, b"a", b"b", b"c") == [CLAIMED] * 3
    assert three.finish(b"a", b"b", b"c") is True


def test_rows_that_changed_within_a_run_do_not_finish(driver: Driver) -> None:
    one = Writer(driver, b"one")
    one.begin()
    one.push(0, b"first attempt")
    one.push(1, b"second attempt")
    assert code(one.finish(b"second attempt")) == "epoch_conflict"


def test_an_earlier_run_is_fenced(driver: Driver) -> None:
    one, two = Writer(driver, b"one"), Writer(driver, b"two")
    one.begin()
    two.begin()
    assert [code(one.push(0, b"a")), code(one.finish()), code(one.begin())] == ["epoch_conflict"] * 3
    assert two.begin() == 0
    assert [code(Writer(driver, b"two", epoch=1).push(0, b"a")), two.push(0, b"a")] == ["epoch_conflict", [STORED]]


def test_a_later_epoch_ends_one_that_is_not_finished(driver: Driver) -> None:
    one, two = Writer(driver, b"one", epoch=4), Writer(driver, b"two", epoch=5)
    one.begin()
    one.push(0, b"a")
    two.begin()
    assert [code(one.begin()), code(one.push(1, b"b"))] == ["epoch_conflict"] * 2
    assert two.push(0, b"a") == [STORED]
    assert two.finish(b"a") is True
    assert code(one.begin()) == "epoch_conflict"
    assert len(driver.drain(Q)) == 2


def test_finished_epochs_leave_constant_state(driver: Driver) -> None:
    sizes = []
    for epoch in range(3 * FINISHED_MAX):
        one = Writer(driver, b"run %d" % epoch, epoch)
        one.begin()
        for stream in range(3):
            one.push(0, b"%d" % stream, stream=b"%d" % stream)
        one.finish(b"0", b"1", b"2")
        driver.do(Op.PURGE, Q, 0)
        sizes.append(len(repr(records(driver.machine))))
    assert abs(sizes[-1] - sizes[FINISHED_MAX]) < 2_000
    assert driver.machine.state.quotas.used(Kind.MARKS, b"a") == 1
    assert driver.machine.state.quotas.used(Kind.NOTE_BYTES, b"a") == 0
    old = Writer(driver, b"old", 2 * FINISHED_MAX - 1)
    assert "is older than" in old.begin().reason


def test_a_restored_copy_continues_and_is_equal(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmqcluster.core.dedup.epochs.CLAIM_STEP", 2)
    done, one, two = Writer(driver, b"done", 2), Writer(driver, b"one", 3), Writer(driver, b"two", 3)
    done.begin()
    done.finish()
    one.begin()
    for number in range(4):
        one.push(number * 2, b"%d" % number, b"same")
    one.push(0, b"x", stream=b"1")
    assert driver.do(Op.BEGIN_EPOCH, JOB, 3, b"two", SEED, b"a") == 1
    assert code(two.push(0, b"x")) == "epoch_conflict"
    other = Driver(copied(driver.machine))
    assert records(other.machine) == records(driver.machine)
    rows = [b"x", b"same", b"3", b"same", b"2", b"1", b"same", b"0", b"same"]
    for each in (driver, other):
        two = Writer(each, b"two", 3)
        assert two.begin() == 0
        assert two.push(0, *rows[:5]) == [CLAIMED] * 5
    assert records(other.machine) == records(driver.machine)
    twice = Driver(copied(other.machine))
    assert records(twice.machine) == records(other.machine)
    two = Writer(twice, b"two", 3)
    assert two.push(5, *rows[5:]) == [CLAIMED] * 4
    assert two.finish(*rows) is True
    assert twice.machine.state.quotas.used(Kind.NOTE_BYTES, b"a") == 0


def test_refused_rows_stay_unclaimed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Writer(driver, b"one"), Writer(driver, b"two")
    one.begin()
    one.push(0, b"a")
    driver.batch([Op.SET_PROPERTIES, Q, [[b"max_items", 1]]])
    two.begin()
    assert code(two.push(0, b"a", b"b")) == "full"
    assert driver.machine.state.quotas.used(Kind.NOTE_BYTES, b"a") == 16
    assert two.push(0, b"a") == [CLAIMED]
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.NOTE_BYTES: 16})
    three = Writer(driver, b"three")
    three.begin()
    assert three.push(0, b"a") == [CLAIMED]
    assert code(three.push(1, b"b")) == "quota_exceeded"


def test_owners_and_jobs_without_epochs_are_apart(driver: Driver) -> None:
    one, other = Writer(driver, b"one"), Writer(driver, b"other", owner=b"b")
    one.begin()
    other.begin()
    assert [one.push(0, b"a"), other.push(0, b"a")] == [[STORED], [STORED]]
    plain = [Op.PUSH_STREAM, Q, [[b"x", None, b""]], JOB, b"s", 1, b"", False, b"a"]
    assert code(driver.batch(plain)[0]) == "epoch_conflict"
    assert driver.do(Op.END_JOBS, [JOB], b"a") == 2
    driver.batch([*plain[:5], 0, *plain[6:]])
    assert code(one.begin()) == "epoch_conflict"


def test_a_job_that_is_not_used_is_forgotten_with_its_epochs(driver: Driver) -> None:
    one, two = Writer(driver, b"one"), Writer(driver, b"two")
    one.begin()
    one.push(0, b"a")
    two.begin()
    driver.wait(StreamPositions.REMEMBER_US / SECOND)
    driver.tick()
    assert driver.machine.state.marks.epochs(b"a", JOB) is None
    assert [driver.machine.state.quotas.used(kind, b"a") for kind in (Kind.MARKS, Kind.NOTE_BYTES)] == [0, 0]


@pytest.mark.parametrize("counts", [[50], [100_000], [1, 10, 20_000, 5, 60_000]])
def test_digests_of_earlier_runs_take_little_more_than_their_bytes(counts: list[int]) -> None:
    """For any number and size of runs no bucket is long, and few are short."""
    epochs, total, number = Epochs(), 0, 0
    epochs.begin(0, b"first", SEED, [])
    for run, count in enumerate(counts):
        notes = [b"".join(digest(b"%d" % (number + index)) for index in range(count))]
        number, total = number + count, total + count
        epochs.begin(0, b"%d" % run, SEED, notes)
        while epochs.move():
            pass
    unclaimed = epochs.unclaimed
    assert unclaimed is not None
    assert (len(unclaimed), epochs.unclaimed_count()) == (total, total)
    sizes = [len(bucket) // 16 for bucket in unclaimed._buckets.values()]
    assert max(sizes) < 150
    assert len(sizes) <= 1 + total // 15
    assert all(unclaimed.take(digest(b"%d" % index)) for index in range(number))
    assert len(unclaimed) == 0


@pytest.mark.parametrize(
    "command",
    [
        [Op.BEGIN_EPOCH, b"", 0, b"r", SEED, b"a"],
        [Op.BEGIN_EPOCH, JOB, -1, b"r", SEED, b"a"],
        [Op.BEGIN_EPOCH, JOB, True, b"r", SEED, b"a"],
        [Op.BEGIN_EPOCH, JOB, 0, b"", SEED, b"a"],
        [Op.BEGIN_EPOCH, JOB, 0, b"r" * 65, SEED, b"a"],
        [Op.BEGIN_EPOCH, JOB, 0, b"r", b"short", b"a"],
        [Op.FINISH_EPOCH, JOB, 0, b"r", -1, b"0" * 16, b"a"],
        [Op.FINISH_EPOCH, JOB, 0, b"r", 0, b"", b"a"],
        [Op.PUSH_STREAM, Q, [[b"x", None, b""]], JOB, b"s", 0, b"note", False, b"a", 0, b"r"],
        [Op.PUSH_STREAM, Q, [[b"x", None, b""]], JOB, b"s", 0, b"0" * 16, True, b"a", 0, b"r"],
    ],
)
def test_malformed_commands_change_nothing(driver: Driver, command: list[Any]) -> None:
    before = records(driver.machine)
    assert isinstance(driver.batch(command)[0], Fault)
    assert records(driver.machine)[0][1:3] == before[0][1:3]
    assert len(driver.machine.state.marks) == 0


class _Task:
    """One attempt of a task of a run, as a client executes it: it reads the notes when its position is refused."""

    def __init__(self, writer: Writer, stream: bytes, rows: list[bytes]) -> None:
        self.writer, self.stream, self.rows = writer, stream, list(rows)
        self.passed: Counter[bytes] = Counter()
        self.elsewhere: Counter[bytes] = Counter()
        self.position = 0

    def step(self, count: int) -> bool:
        """Push the next rows; return True if there are no more."""
        batch, self.rows = self.rows[:count], self.rows[count:]
        while batch:
            new = []
            for row in batch:
                if self.elsewhere[digest(row)]:
                    self.elsewhere[digest(row)] -= 1
                    self.passed[digest(row)] += 1
                else:
                    new.append(row)
            batch = new
            if not batch:
                break
            result = self.writer.push(self.position, *batch, stream=self.stream)
            if isinstance(result, list) and result:
                self.position += len(batch)
                self.passed.update(map(digest, batch))
                break
            assert isinstance(result, list) or result.code == "out_of_sequence"
            mark = self.writer.driver.machine.state.marks.find(b"a", JOB, self.stream)
            assert mark is not None
            notes = b"".join(mark.notes)
            self.position = mark.position
            self.elsewhere = Counter(notes[at : at + 16] for at in range(0, len(notes), 16)) - self.passed
        return not self.rows


@pytest.mark.parametrize("seed", range(60))
def test_any_repetition_stores_every_row_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are abandoned at any time, tasks that are repeated and run twice, other numbers of tasks,
    restored replicas.
    """
    monkeypatch.setattr("lmqcluster.core.dedup.epochs.CLAIM_STEP", 3)
    rng = random.Random(seed)
    driver = Driver()
    wanted: list[bytes] = []
    for epoch in range(3):
        rows = [rng.choice((b"same", b"%d" % number)) for number in range(rng.randint(0, 40))]
        wanted += rows
        for attempt in range(5):
            if rng.random() < 0.3:
                driver = Driver(copied(driver.machine))
            writer = Writer(driver, b"%d" % attempt, epoch)
            state = writer.begin()
            if state == 2:
                assert writer.finish(*rows) is True
                break
            tasks = rng.randint(1, 5)
            rng.shuffle(rows)
            parts = [rows[index::tasks] for index in range(tasks)]
            running = [_Task(writer, b"%d" % index, part) for index, part in enumerate(parts)]
            # Some tasks run twice, in another order.
            again = [index for index in range(tasks) if rng.random() < 0.3]
            running += [_Task(writer, b"%d" % one, rng.sample(parts[one], len(parts[one]))) for one in again]
            gives_up = attempt < 4 and rng.random() < 0.6
            steps = rng.randint(0, 20) if gives_up else 1 << 30
            while running and steps:
                steps -= 1
                task = rng.choice(running)
                if task.step(rng.randint(1, 6)):
                    running.remove(task)
            if not running and rng.random() < 0.8:
                assert writer.finish(*rows) is True
                if rng.random() < 0.7:
                    break
        else:
            last = Writer(driver, b"last", epoch)
            if last.begin() == 0:
                assert _Task(last, b"0", rows).step(len(rows) + 1)
            assert last.finish(*rows) is True
    assert sorted(driver.drain(Q)) == sorted(wanted)
