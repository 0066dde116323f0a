"""Stream positions of writers: how far each stream of a job has been stored.

A job that writes exactly once numbers the messages of each of its *streams* (one for each task, for example) 0, 1, 2,
... The core keeps one number for a stream, its position: how many of its messages are stored. So a job of a billion
messages costs no more than one of ten. A writer may leave *notes* with its pushes, from which it recovers its place
after a crash.

A job that divides its messages differently when it is repeated writes in *epochs*, see `epochs`: its notes are the
digests of its messages, which identify them in any stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from ..log.results import RefusedError, shown
from ..owners.owner_table import OwnedTable, is_random
from ..owners.quotas import Kind, Quotas
from .epochs import Epochs, Finished
from .row_digests import DIGEST_BYTES, RowDigests, split

__all__ = ["StreamPosition", "StreamPositions"]

NOTE_BYTES_MAX = 1024 * 1024
"""Most bytes of one note."""
_CHUNK_BYTES = 16 * 1024
_INT_MAX = 1 << 62


class StreamPosition:
    """One stream.

    Attributes:
        position: number of stored messages, and so the position of the next one.
        done: True if the stream is complete; then every push is treated as a repetition.
        notes: notes that the writer left with its pushes, in order.
        note_bytes: their length.
    """

    __slots__ = ("done", "note_bytes", "notes", "position")

    def __init__(self) -> None:
        self.position = 0
        self.done = False
        self.notes: list[bytes] = []
        self.note_bytes = 0

    def add_note(self, note: bytes) -> None:
        """Append a note."""
        if self.notes and len(self.notes[-1]) + len(note) <= _CHUNK_BYTES:
            self.notes[-1] += note
        elif note:
            self.notes.append(note)
        self.note_bytes += len(note)


class Job:
    """The streams of one job.

    Attributes:
        used_us: log time of the last push.
        note_bytes: length of the notes of all streams and of the digests of earlier runs.
        epochs: the epochs; None if the job writes without them.
    """

    __slots__ = ("epochs", "note_bytes", "streams", "used_us")

    def __init__(self) -> None:
        self.used_us = 0
        self.note_bytes = 0
        self.streams: dict[bytes, StreamPosition] = {}
        self.epochs: Epochs | None = None

    @property
    def marks(self) -> int:
        """Return its share of the quota of marks: one for each stream, and one for its epochs."""
        return len(self.streams) + (self.epochs is not None)


class StreamPositions:
    """Jobs by (owner, name). They end by command, or after 30 days without use."""

    REMEMBER_US = 30 * 86_400 * 1_000_000

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._jobs: OwnedTable[Job] = OwnedTable()

    def __len__(self) -> int:
        """Return the number of streams plus the number of jobs that write in epochs."""
        return self._quotas.total(Kind.MARKS)

    def find(self, owner: bytes, job: bytes, stream: bytes) -> StreamPosition | None:
        """Return the position of a stream, or None."""
        found = self._jobs.find(owner, job)
        return None if found is None else found[1].streams.get(stream)

    def jobs(self) -> Iterator[tuple[bytes, bytes, Job]]:
        """Return (owner, name, job) of all jobs, the least recently used first."""
        return ((owner, name, job) for (owner, name), job in self._jobs.items())

    def is_new(self, owner: bytes, job: bytes, stream: bytes, first: int, count: int) -> bool:
        """Return whether `count` messages from position `first` on are new; otherwise they have been stored before.

        Raises:
            RefusedError: ``out_of_sequence`` if only some of them were, or messages before them were not;
                ``forbidden`` if the job
                belongs to another owner; ``quota_exceeded``.
        """
        mark = self.find(owner, job, stream)
        position = 0 if mark is None else mark.position
        if mark is not None and (mark.done or (count and first + count <= position)):
            return False
        if first != position:
            raise RefusedError(
                "out_of_sequence",
                f"the next position of stream {stream!r} of job {job!r} is {position}, not {first}; nothing is stored",
            )
        if mark is None:
            self._check_owner(owner, job)
            self._quotas.check(Kind.MARKS, owner)
        return True

    def check_note(self, owner: bytes, note: bytes, claimed: int) -> None:
        """Refuse a note that exceeds the owner's quota after the digests that its messages claim are removed.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        self._quotas.check(Kind.NOTE_BYTES, owner, len(note) - claimed * DIGEST_BYTES)

    def advance(
        self,
        owner: bytes,
        name: bytes,
        stream: bytes,
        count: int,
        note: bytes,
        now_us: int,
        *,
        done: bool,
        claimed: int,
    ) -> None:
        """Record that messages of a stream were stored; a job without an owner passes to this one."""
        job = self._use(owner, name, now_us)
        mark = job.streams.get(stream)
        if mark is None:
            mark = job.streams[stream] = StreamPosition()
            self._quotas.take(Kind.MARKS, owner)
        mark.position += count
        if done:
            self._count_notes(owner, job, -mark.note_bytes)
            mark.done, mark.notes, mark.note_bytes = True, [], 0
        else:
            mark.add_note(note)
            self._count_notes(owner, job, len(note) - claimed * DIGEST_BYTES)

    # --- epochs ---------------------------------------------------------------------------------------------------

    def epochs(self, owner: bytes, name: bytes) -> Epochs | None:
        """Return the epochs of a job; None if it is unknown, or writes without them."""
        found = self._jobs.find(owner, name)
        return None if found is None else found[1].epochs

    def begin(self, owner: bytes, name: bytes, epoch: int, run: bytes, seed: bytes, now_us: int) -> bool:
        """Begin a run of an epoch; False if the epoch is finished.

        Raises:
            RefusedError: ``epoch_conflict`` if another run has taken over, the epoch is older than what is
                remembered, or the job writes
                without epochs; ``forbidden`` if the job belongs to another owner; ``quota_exceeded``.
        """
        epochs = self.epochs(owner, name)
        if epochs is None:
            if self._jobs.find(owner, name) is not None:
                raise RefusedError("epoch_conflict", f"job {name!r} writes without epochs")
            self._check_owner(owner, name)
            self._quotas.check(Kind.MARKS, owner)
        elif epochs.is_finished(epoch):
            self._use(owner, name, now_us)
            return False
        elif (epochs.open, epochs.run) == (epoch, run):
            return True
        else:
            epochs.check_begin(epoch, run)
        job = self._use(owner, name, now_us)
        if job.epochs is None:
            job.epochs = Epochs()
            self._quotas.take(Kind.MARKS, owner)
        if job.epochs.open != epoch:
            self._count_notes(owner, job, -job.note_bytes)
        notes = [note for mark in job.streams.values() for note in mark.notes]
        self._clear_streams(owner, job)
        job.epochs.begin(epoch, run, seed, notes)
        return True

    def _check_owner(self, owner: bytes, name: bytes) -> None:
        """Refuse a new job that another owner has under a random name: a repetition would store its rows again.

        Names that can be guessed are separate for each owner, so that no owner can occupy those of others.
        """
        is_new = self._jobs.find(owner, name) is None and is_random(name)
        other = self._jobs.owner_of(name) if is_new else None
        if other is not None:
            raise RefusedError(
                "forbidden",
                f"job {shown(name)} belongs to principal {shown(other)}, not to {shown(owner)}; nothing was done; use a token of "
                "that principal",
            )

    def finish(self, owner: bytes, name: bytes, epoch: int, run: bytes, wanted: Finished, now_us: int) -> None:
        """Finish an epoch: only its number of rows and the sum of their digests are kept.

        Raises:
            RefusedError: ``epoch_conflict`` if other rows are stored, or the epoch is unknown.
        """
        epochs = self.epochs(owner, name)
        if epochs is None:
            raise RefusedError("epoch_conflict", f"the cluster knows of no epochs of job {name!r}: it has ended")
        job = self._use(owner, name, now_us)
        epochs.finish(epoch, run, wanted, sum(mark.position for mark in job.streams.values()))
        if epochs.open < 0:
            self._count_notes(owner, job, -job.note_bytes)
            self._clear_streams(owner, job)

    def _clear_streams(self, owner: bytes, job: Job) -> None:
        if job.streams:
            self._quotas.give(Kind.MARKS, owner, len(job.streams))
            job.streams = {}

    def _use(self, owner: bytes, name: bytes, now_us: int) -> Job:
        found = self._jobs.find(owner, name)
        whose, job = (owner, Job()) if found is None else found
        if whose != owner:
            self._pop(whose, name)
            self._count(owner, job)
        job.used_us = now_us
        self._jobs.put(owner, name, job)
        return job

    def _count(self, owner: bytes, job: Job) -> None:
        self._quotas.take(Kind.MARKS, owner, job.marks)
        if job.note_bytes:
            self._quotas.take(Kind.NOTE_BYTES, owner, job.note_bytes)

    def _count_notes(self, owner: bytes, job: Job, count: int) -> None:
        job.note_bytes += count
        if count > 0:
            self._quotas.take(Kind.NOTE_BYTES, owner, count)
        elif count:
            self._quotas.give(Kind.NOTE_BYTES, owner, -count)

    def _pop(self, owner: bytes, name: bytes) -> Job | None:
        job = self._jobs.pop(owner, name)
        if job is not None:
            if job.marks:
                self._quotas.give(Kind.MARKS, owner, job.marks)
            if job.note_bytes:
                self._quotas.give(Kind.NOTE_BYTES, owner, job.note_bytes)
        return job

    def end(self, owner: bytes, names: Iterable[bytes]) -> int:
        """Forget the owner's jobs; return how many marks they had."""
        jobs = [self._pop(owner, name) for name in names]
        return sum(job.marks for job in jobs if job is not None)

    def due_us(self) -> int | None:
        """Return the log time at which the next job is forgotten, None without jobs."""
        oldest = self._jobs.oldest()
        return None if oldest is None else oldest[1].used_us + self.REMEMBER_US

    def expire(self, now_us: int, limit: int | None) -> int:
        """Forget up to `limit` jobs that were not used for 30 days; return how many."""
        expired = 0
        while expired != limit and (oldest := self._jobs.oldest()) is not None:
            (owner, name), job = oldest
            if job.used_us > now_us - self.REMEMBER_US:
                break
            self._pop(owner, name)
            expired += 1
        return expired

    def job_rows(self) -> Iterator[list[object]]:
        """Return the jobs as of now for a snapshot, least recently used first."""
        return iter([[owner, name, job.used_us, _epoch_row(job.epochs)] for owner, name, job in self.jobs()])

    def unclaimed_rows(self) -> Iterator[list[object]]:
        """Return the digests of earlier runs as of now; the jobs may change while the rows are read.

        A row holds a note of an earlier run, or some of the unclaimed digests.
        """
        frozen = [
            (owner, name, list(job.epochs.moving), job.epochs.unclaimed.chunks())
            for owner, name, job in self.jobs()
            if job.epochs is not None and job.epochs.unclaimed is not None
        ]
        return chain.from_iterable(_unclaimed_rows(*one) for one in frozen)

    def rows(self) -> Iterator[list[object]]:
        """Return the streams as of now for a snapshot, by jobs; they may change while the rows are read.

        A row holds at most one note of a stream; a stream without notes has one row.
        """
        frozen = [
            [owner, name, stream, mark.position, int(mark.done), mark.notes.copy()]
            for owner, name, job in self.jobs()
            for stream, mark in job.streams.items()
        ]
        return ([*row[:-1], note] for row in frozen for note in row[-1] or [b""])  # type: ignore[attr-defined]

    def load_jobs(self, rows: Iterable[tuple[bytes, bytes, int, list[Any]]]) -> None:
        """Add the rows of a snapshot, in the order they were written."""
        for owner, name, used_us, row in rows:
            job = Job()
            job.used_us = used_us
            if row:
                job.epochs = _epochs_of(*row)
                self._quotas.take(Kind.MARKS, owner)
            self._jobs.put(owner, name, job)

    def load_unclaimed(self, rows: Iterable[tuple[bytes, bytes, bool, bytes]]) -> None:
        """Add the rows of a snapshot, whose jobs have been added.

        Raises:
            ValueError: a row's job is unknown or has had no earlier runs.
        """
        for owner, name, is_moving, digests in rows:
            job = self._job(owner, name)
            if job.epochs is None or job.epochs.unclaimed is None:
                raise ValueError("digests of earlier runs belong to a job that has had none")
            if is_moving:
                job.epochs.moving.append(digests)
            else:
                for digest in split(digests):
                    job.epochs.unclaimed.add(digest)
            self._count_notes(owner, job, len(digests))

    def load(self, rows: Iterable[tuple[bytes, bytes, bytes, int, int, bytes]]) -> None:
        """Add the rows of a snapshot, in the order they were written, whose jobs have been added.

        Raises:
            ValueError: a row's job is unknown.
        """
        for owner, name, stream, position, done, note in rows:
            job = self._job(owner, name)
            mark = job.streams.get(stream)
            if mark is None:
                mark = job.streams[stream] = StreamPosition()
                self._quotas.take(Kind.MARKS, owner)
            mark.position, mark.done = position, bool(done)
            if note:
                # Kept in the same pieces: equal states give equal records.
                mark.notes.append(note)
                mark.note_bytes += len(note)
                self._count_notes(owner, job, len(note))

    def _job(self, owner: bytes, name: bytes) -> Job:
        job = self._jobs.get(owner, name)
        if job is None:
            raise ValueError(f"a stream belongs to job {name!r}, which is not there")
        return job


def _unclaimed_rows(
    owner: bytes, name: bytes, moving: list[bytes], unclaimed: Iterator[bytes]
) -> Iterator[list[object]]:
    yield from ([owner, name, True, note] for note in moving)
    yield from ([owner, name, False, digests] for digests in unclaimed)


def _epoch_row(epochs: Epochs | None) -> list[object]:
    if epochs is None:
        return []
    buckets = [] if epochs.unclaimed is None else [epochs.unclaimed.seed, epochs.unclaimed.expected]
    finished = [[epoch, *found] for epoch, found in epochs.finished.items()]
    return [epochs.open, epochs.run, epochs.past_runs, buckets, finished]


def _epochs_of(
    is_open: int, run: bytes, past_runs: list[bytes], buckets: list[Any], finished: list[tuple[int, int, bytes]]
) -> Epochs:
    epochs = Epochs()
    epochs.open, epochs.run, epochs.past_runs = is_open, run, list(past_runs)
    epochs.finished = {epoch: Finished(rows, digest) for epoch, rows, digest in finished}
    epochs.unclaimed = RowDigests(*buckets) if buckets else None
    return epochs


def checked_position(first: int) -> int:
    """Return the position that a command names.

    Raises:
        ValueError: it is malformed.
    """
    if type(first) is not int or not 0 <= first < _INT_MAX:
        raise ValueError("a position must be an integer, 0 or more, of 62 bits")
    return first
