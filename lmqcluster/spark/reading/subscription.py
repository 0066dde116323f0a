"""The driver's side of a subscription: one connection, a session, and a thread that renews the batch leases.

A query claims its subscription on first use. From then on the cluster fences the consumer before, so two queries with
one name cannot both have a message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from lmqcluster import LmqError
from lmqcluster.client import Backlog, BatchLease

from ..base.connecting import Cluster, Contact, selection_errors
from ..base.errors import TakenOverError
from ..base.options import Connection, Selection
from .slices import Slice, slice_count

__all__ = ["Known", "KnownBatch", "LeaseKeeper"]

logger = logging.getLogger("lmqcluster.spark")

_RENEW_S_MAX: Final = 600.0
_RETRY_S_MAX: Final = 10.0
_PROVISIONAL_LEASE_S: Final = 120.0
_PLANNED_AFTER_S: Final = 1.0
"""How long Spark has to write a returned offset to its log."""


@dataclass(frozen=True)
class KnownBatch:
    """An epoch that is not settled, as the cluster knows it: ``live`` or ``expired``, and its number of messages."""

    state: str
    count: int


@dataclass(frozen=True)
class Known:
    """A subscription as the cluster knows it: the highest settled epoch, and the unsettled batches by epoch."""

    settled: int
    batches: dict[int, KnownBatch]

    def state(self, epoch: int) -> str:
        """Return ``live``, ``expired``, ``settled`` or ``unknown``."""
        if epoch <= self.settled:
            return "settled"
        batch = self.batches.get(epoch)
        return "unknown" if batch is None else batch.state


class LeaseKeeper:
    """Reserves batches of one subscription and renews their leases until it is closed."""

    def __init__(self, connection: Connection, selection: Selection, lease_s: float) -> None:
        """Connect.

        Raises:
            LmqError: no node can be reached.
        """
        self._cluster = Cluster(connection)
        self._selection = selection
        self._lease_s = lease_s
        self._turn = threading.Condition()
        self._closed = False
        self._session: int | None = None
        self._renewer: threading.Thread | None = None
        self._renew_at_s = 0.0

    def reserve(self, subscription: str, epoch: int, count: int, *, provisional: bool) -> BatchLease:
        """Reserve up to `count` messages, or return the batch that the epoch already has; renew the leases from now on.

        A provisional lease is short, in case this process dies before the subscription's name is stored. The next
        renewal, which follows soon, makes it a full one.

        Raises:
            OptionError: the cluster refuses the queue's name or the pattern.
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
        """
        session = self.session(subscription)
        lease_s = min(self._lease_s, _PROVISIONAL_LEASE_S) if provisional else self._lease_s
        source = self._selection.arguments()
        with selection_errors(self._selection), _fencing(subscription):
            lease = self._cluster.call(
                lambda client: client.reserve_batch(
                    subscription, epoch, **source, count=count, lease_s=lease_s, session=session
                )
            )
        self._keep(subscription, min(lease_s / 3, _PLANNED_AFTER_S if provisional else _RENEW_S_MAX))
        return lease

    def extend(self, subscription: str) -> None:
        """Renew all leases of the subscription at once, and from now on.

        Raises:
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
        """
        session = self.session(subscription)
        with _fencing(subscription):
            self._cluster.call(lambda client: client.renew_batches(subscription, self._lease_s, session=session))
        self._keep(subscription, min(self._lease_s / 3, _RENEW_S_MAX))

    def session(self, subscription: str) -> int:
        """Return the session of this query, which begins on first use and fences the consumer before.

        Raises:
            LmqError: the cluster did not answer.
        """
        if self._session is None:
            self._session = self._cluster.call(lambda client: client.claim_subscription(subscription))
        return self._session

    def contact(self) -> Contact:
        """Return what tasks need to reach the cluster, see `Cluster.contact`."""
        return self._cluster.contact()

    def known(self, subscription: str) -> Known:
        """Return the cluster's state of the subscription; an unknown one is empty.

        Raises:
            LmqError: the cluster did not answer.
        """
        found = self._cluster.call(lambda client: client.subscription(subscription))
        if found is None:
            return Known(0, {})
        return Known(
            found["settled"], {one["epoch"]: KnownBatch(one["state"], one["count"]) for one in found["batches"]}
        )

    def settle(self, subscription: str, epoch: int) -> list[int]:
        """Remove the messages of all batches up to an epoch for good; return those of these epochs that had expired.

        Raises:
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
        """
        session = self.session(subscription)
        with _fencing(subscription):
            return self._cluster.call(lambda client: client.settle_batches(subscription, epoch, session=session))

    def abandon(self, subscription: str) -> None:
        """Return the messages of all batches to their positions without counting a delivery; the next use begins a new
        session.

        Raises:
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
        """
        session = self.session(subscription)
        with _fencing(subscription):
            self._cluster.call(lambda client: client.abandon_batches(subscription, session=session))
        self._session = None

    def incarnation(self) -> str:
        """Return the name of the cluster's current incarnation.

        Raises:
            LmqError: the cluster did not answer.
        """
        return self._cluster.call(lambda client: client.incarnation())

    def renew_claim(self) -> None:
        """Claim the subscription again on the next use, because the cluster has forgotten the session."""
        self._session = None

    def slices(self, subscription: str, epoch: int, count: int, slices_min: int) -> list[Slice]:
        """Return the slices of a batch, none of which begins within a group.

        Raises:
            LmqError: the cluster did not answer.
        """
        wanted, begins = slice_count(count, slices_min), [0]
        if wanted > 1:
            # None for a batch that is no longer live; its readers get the error.
            begins = self._cluster.call(lambda client: client.cut_batch(subscription, epoch, wanted)) or begins
        session, contact, incarnation = self.session(subscription), self.contact(), self.incarnation()
        return [
            Slice(subscription, epoch, begin, end, session, incarnation, contact)
            for begin, end in zip(begins, [*begins[1:], count], strict=True)
        ]

    def backlog(self, bytes_max: int | None = None, *, queues_max: int | None = None) -> Backlog:
        """Return the messages that could be reserved now, how many of them have `bytes_max` bytes, and the largest
        queues.

        Raises:
            OptionError: the cluster refuses the queue's name or the pattern.
            LmqError: the cluster did not answer.
        """
        source = self._selection.arguments()
        with selection_errors(self._selection):
            return self._cluster.call(
                lambda client: client.backlog(**source, bytes_max=bytes_max, queues_max=queues_max)
            )

    def close(self) -> None:
        """Stop renewing and disconnect. The batches stay reserved until the query continues."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        self._cluster.close()

    def _keep(self, subscription: str, renew_in_s: float) -> None:
        with self._turn:
            self._renew_at_s = time.monotonic() + renew_in_s
            self._turn.notify()
            if self._renewer is None:
                # A daemon thread, because the driver's process may end without calling `close`.
                self._renewer = threading.Thread(
                    target=self._renew, args=(subscription,), name="lmq-renew", daemon=True
                )
                self._renewer.start()

    def _renew(self, subscription: str) -> None:
        while self._wait_for_turn():
            try:
                self._cluster.client.renew_batches(subscription, self._lease_s, session=self._session)
            except LmqError as exc:
                if self._closed:
                    return
                if exc.code == "fenced":
                    # The query gets the reason with its next call.
                    logger.warning("lease renewal of subscription %r stopped: %s", subscription, exc)
                    with self._turn:
                        self._renewer = None
                    return
                logger.warning("lease renewal of subscription %r failed, retrying: %s", subscription, exc)
                wait_s = min(self._lease_s / 10, _RETRY_S_MAX)
            else:
                wait_s = min(self._lease_s / 3, _RENEW_S_MAX)
            with self._turn:
                self._renew_at_s = time.monotonic() + wait_s

    def _wait_for_turn(self) -> bool:
        """Wait until the next renewal is due; return False once this is closed."""
        with self._turn:
            while not self._closed:
                wait_s = self._renew_at_s - time.monotonic()
                if wait_s <= 0:
                    return True
                self._turn.wait(wait_s)
            return False


@contextmanager
def _fencing(subscription: str) -> Iterator[None]:
    """Raise `TakenOverError` if a call in the block is refused because of another query."""
    try:
        yield
    except LmqError as exc:
        if exc.code == "fenced":
            raise TakenOverError(subscription) from exc
        raise
