"""The settings of a replay, and its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ..base.access import Access

__all__ = ["Planned", "PlannedQueue", "ReplaySettings", "Replayed"]


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        rows: number of rows that could become messages.
        stored: number of rows stored now; an earlier replay of the same name has stored the others.
        bad: number of rows that could not become messages.
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
        queue_count: number of queues.
        rows, size_bytes: of all queues.
        bad: number of rows that could not become messages.
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
        form: one of ``archive`` (the output of that pipeline), ``parquet``, ``csv``, ``tsv`` and ``json`` (lines).
        access: the cluster.
        queue: the queue for all rows.
        queue_by: or the column whose value names the queue of a row; not needed for an archive.
        queue_prefix: prefix for that value.
        value: the column whose value is the message; ``None`` for the whole row as a JSON object. Not for an archive.
        order_by: the column that orders the rows of each queue; ``None`` for the order of the files, or for an archive
            the order in which the messages became ready.
        ordered: whether the rows of a queue keep an order at all; without, many tasks push to one queue.
        since, until: time window in which the messages of an archive became ready, with time zones.
        where: an expression of Spark's SQL over the columns of the files; true for the rows to push.
        rate: maximum messages a second.
        skip_bad: whether to skip rows that cannot become messages instead of ending the replay.
        name: name of the replay; ``None`` to derive it from the other settings and the files, or the messages of an
            archive.
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
        """Return the settings that determine, with the files, which messages are pushed; they must not change for a
        name.
        """
        window = [None if moment is None else moment.timestamp() for moment in (self.since, self.until)]
        what = [self.form, self.queue, self.queue_by, self.queue_prefix, self.value, *window, self.where]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]

    def application(self, identity: Sequence[object]) -> tuple[str, str]:
        """Return the application that writes the rows, and its prefix that does not depend on `choice`.

        Args:
            identity: distinguishes the rows from those of other unnamed replays.
        """
        named = [self.name] if self.name is not None else [list(self.inputs), self.choice, *identity]
        stem = f"replay:{hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]}:"
        return f"{stem}{self.choice}", stem
