"""Epochs of a job: writes that are repeated until they are finished, and which of their rows are stored already.

A job numbers its writes: micro-batches of a query, for example. An attempt to write an epoch is a *run*; each run
divides the rows into streams in a different way. When a run begins, the rows that earlier runs of the epoch have
stored are *unclaimed*. If a row of the run is among them, it claims it and is not stored again. An epoch is finished
when its run has sent all its rows and nothing is unclaimed: then exactly these rows are stored. Only the number of
rows and the sum of their digests are kept, with which a later repetition is compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ..log.results import RefusedError
from .row_digests import DIGEST_BYTES, RowDigests, split

__all__ = ["EPOCH_MAX", "FINISHED_MAX", "RUN_BYTES_MAX", "Epochs", "Finished", "checked_run"]

FINISHED_MAX = 100
"""Number of finished epochs that are remembered, the newest ones; as many as Spark keeps in a checkpoint."""
EPOCH_MAX = 1 << 62
RUN_BYTES_MAX = 64
_RUNS_MAX = 100
CLAIM_STEP = 5_000
"""Most digests that one command makes unclaimed, apart from those of its last note."""


class Finished(NamedTuple):
    """A finished epoch: its number of rows, and the sum of their digests modulo 2**128."""

    rows: int
    digest: bytes


class Epochs:
    """The epochs of one job.

    Attributes:
        open: the epoch that is being written, -1 if there is none.
        run: the run that writes it, the only one that may.
        past_runs: its earlier runs, which are fenced off.
        finished: the newest of the finished epochs, by their number.
        moving: notes of earlier runs whose digests are not among the unclaimed ones yet.
        unclaimed: digests of rows that earlier runs have stored and this one has not reached; None if there was none.
    """

    __slots__ = ("finished", "moving", "open", "past_runs", "run", "unclaimed")

    def __init__(self) -> None:
        self.open = -1
        self.run = b""
        self.past_runs: list[bytes] = []
        self.finished: dict[int, Finished] = {}
        self.moving: deque[bytes] = deque()
        self.unclaimed: RowDigests | None = None

    @property
    def last(self) -> int:
        """Return the last finished epoch, -1 if there is none."""
        return next(reversed(self.finished), -1)

    def unclaimed_count(self) -> int:
        """Return how many rows earlier runs have stored that this one has not reached."""
        return len(self.unclaimed or ()) + sum(map(len, self.moving)) // DIGEST_BYTES

    def is_finished(self, epoch: int) -> bool:
        """Return whether an epoch is finished.

        Raises:
            RefusedError: ``epoch_conflict`` if a later one is finished, and nothing is known of this one.
        """
        if epoch <= self.last and epoch not in self.finished:
            raise RefusedError(
                "epoch_conflict",
                f"epoch {epoch} is older than the {len(self.finished)} epochs that the cluster remembers, up to {self.last},"
                " so whether its rows are stored is unknown; nothing is stored now",
            )
        return epoch in self.finished

    def check_run(self, epoch: int, run: bytes) -> None:
        """Refuse a write that does not come from the run that writes the open epoch.

        Raises:
            RefusedError: ``epoch_conflict``.
        """
        if (epoch, run) != (self.open, self.run):
            what = f"epoch {self.open} is being written" if epoch != self.open else "another run has taken over"
            raise RefusedError("epoch_conflict", f"this run may not write epoch {epoch}: {what}; nothing is stored")
        if self.moving:
            raise RefusedError("epoch_conflict", f"epoch {epoch} has not begun yet; nothing is stored")

    def check_begin(self, epoch: int, run: bytes) -> None:
        """Refuse an epoch before the open one, and a superseded run of the open epoch.

        Raises:
            RefusedError: ``epoch_conflict``.
        """
        if epoch < self.open:
            raise RefusedError("epoch_conflict", f"epoch {self.open} has begun after epoch {epoch}; nothing is stored")
        if epoch == self.open and run in self.past_runs:
            raise RefusedError("epoch_conflict", f"another run of epoch {epoch} has taken over; nothing is stored")

    def begin(self, epoch: int, run: bytes, seed: bytes, notes: Iterable[bytes]) -> None:
        """Begin a run of an unfinished epoch; `notes` are those of the previous run, which become unclaimed."""
        if epoch != self.open:
            self.open, self.run, self.past_runs = epoch, run, []
            self.moving.clear()
            self.unclaimed = None
            return
        self.past_runs = [*self.past_runs[1 - _RUNS_MAX :], self.run]
        self.run = run
        self.moving.extend(notes)
        expected = self.unclaimed_count()
        if self.moving and (self.unclaimed is None or expected > self.unclaimed.expected):
            self.moving.extend([] if self.unclaimed is None else self.unclaimed.buckets())
            self.unclaimed = RowDigests(seed, 2 * expected)

    def move(self) -> bool:
        """Move digests of earlier runs to the unclaimed ones; True if this must be repeated."""
        moved = 0
        while self.moving and moved < CLAIM_STEP:
            for digest in split(self.moving.popleft()):
                assert self.unclaimed is not None  # noqa: S101 - for the type checker
                self.unclaimed.add(digest)
                moved += 1
        return bool(self.moving)

    def claim(self, digests: bytes) -> list[bool]:
        """Return for each row, by its digest, whether an earlier run has stored it, and claim those rows."""
        unclaimed = self.unclaimed
        if not unclaimed:
            return [False] * (len(digests) // DIGEST_BYTES)
        return [unclaimed.take(digest) for digest in split(digests)]

    def give_up(self, digests: bytes, claimed: list[bool]) -> None:
        """Undo `claim`."""
        for digest, is_claimed in zip(split(digests), claimed, strict=True):
            if is_claimed and self.unclaimed is not None:
                self.unclaimed.add(digest)

    def finish(self, epoch: int, run: bytes, wanted: Finished, rows: int) -> None:
        """Finish an epoch if its current run, of which `rows` rows have arrived, has stored exactly the rows wanted.

        Raises:
            RefusedError: ``epoch_conflict`` if it has not, if the epoch is finished with other rows, or if another
                run writes it.
        """
        if self.is_finished(epoch):
            if self.finished[epoch] != wanted:
                raise RefusedError(
                    "epoch_conflict",
                    f"epoch {epoch} is finished with {self.finished[epoch].rows} rows, and these {wanted.rows} are not the same;"
                    " none of them is stored",
                )
            return
        self.check_run(epoch, run)
        stored = rows + len(self.unclaimed or ())
        if stored != wanted.rows or rows != wanted.rows:
            raise RefusedError(
                "epoch_conflict",
                f"epoch {epoch} was repeated with other rows: this run has {wanted.rows} and {rows} of them are stored, but"
                f" all attempts together have stored {stored}",
            )
        self.finished[epoch] = wanted
        if len(self.finished) > FINISHED_MAX:
            del self.finished[next(iter(self.finished))]
        self.open, self.run, self.past_runs, self.unclaimed = -1, b"", [], None


def checked_run(epoch: int, run: bytes) -> None:
    """Check the epoch and the run that a command names.

    Raises:
        ValueError: one of them is malformed.
    """
    if (
        type(epoch) is not int
        or not 0 <= epoch < EPOCH_MAX
        or type(run) is not bytes
        or not 0 < len(run) <= RUN_BYTES_MAX
    ):
        raise ValueError(
            f"an epoch must be an integer, 0 or more, of 62 bits, and a run must have 1 to {RUN_BYTES_MAX} bytes"
        )
