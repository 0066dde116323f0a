"""The settings of a replay, and its outcome."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from .access import Access

__all__ = ["Planned", "PlannedQueue", "ReplaySettings", "Replayed"]


@dataclass(frozen=True)
class Replayed:
    """The outcome for the rows.

    Attributes:
        rows: how many could become messages.
        stored: how many of them were stored now; an earlier replay of the same name has stored the others.
        bad: how many could not become messages.
    """

    rows: int
    stored: int
    bad: int


@dataclass(frozen=True)
class PlannedQueue:
    """The messages that would be pushed to a queue, and the bytes of their bodies."""

    queue: str
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Planned:
    """The messages that a replay would push.

    Attributes:
        queues: those with the most rows.
        queue_count: how many queues there are.
        rows, size_bytes: of all queues.
        bad: how many rows could not become messages.
    """

    queues: list[PlannedQueue]
    queue_count: int
    rows: int
    size_bytes: int
    bad: int


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """The settings of one replay.

    Attributes:
        inputs: files, directories or globs.
        form: one of ``archive`` (what the pipeline of that name writes), ``parquet``, ``csv``, ``tsv`` and ``json`` (lines).
        access: the cluster.
        queue: the queue for all rows.
        queue_by: or the column whose value names the queue of a row; for an archive not needed.
        queue_prefix: what stands before that value.
        value: the column whose value is the message; ``None`` for the whole row as a JSON object. An archive has its own.
        order_by: the column to push in the order of, within each queue; ``None`` for the order of the files, or in an archive
            for that in which the messages were due.
        ordered: whether the rows of a queue keep an order at all; without, many tasks push to one queue.
        since, until: the times from and before which the messages of an archive were due, aware.
        where: an expression of Spark's SQL over the columns of the files, which is true of the rows to push.
        rate: most messages a second.
        skip_bad: whether rows that cannot become messages are left out instead of ending the replay.
        name: names the replay; ``None`` for a name made of the other settings and the files, or of an archive the messages.
    """

    inputs: Sequence[str]
    form: str
    access: Access
    queue: str | None = None
    queue_by: str | None = None
    queue_prefix: str = ""
    value: str | None = None
    order_by: str | None = None
    ordered: bool = True
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None
    rate: float | None = None
    skip_bad: bool = False
    name: str | None = None

    @property
    def choice(self) -> str:
        """Return the settings that decide, with the files, which messages are pushed: under one name they must stay."""
        window = [None if moment is None else moment.timestamp() for moment in (self.since, self.until)]
        what = [self.form, self.queue, self.queue_by, self.queue_prefix, self.value, *window, self.where]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]

    def application(self, identity: Sequence[object]) -> tuple[str, str]:
        """Return the name under which the rows are written, and what it begins with whatever `choice` is.

        Args:
            identity: tells the rows from those of other replays that have no name of their own.
        """
        named = [self.name] if self.name is not None else [list(self.inputs), self.choice, *identity]
        stem = f"replay:{hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]}:"
        return f"{stem}{self.choice}", stem
