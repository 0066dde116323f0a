"""The driver's side of a subscription: one connection, a session, and a thread that keeps the batch leases alive.

A query claims its subscription when it first uses it. From then on the cluster refuses the consumer before, so that two
queries with one name cannot both have a message.
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

from .connecting import Cluster, Contact, selection_errors
from .errors import TakenOverError
from .options import Connection, Selection
from .slices import Slice, slice_count

__all__ = ["Known", "KnownBatch", "LeaseKeeper"]

logger = logging.getLogger("lmqcluster.spark")

_RENEW_S_MAX: Final = 600.0
_RETRY_S_MAX: Final = 10.0
_PROVISIONAL_LEASE_S: Final = 120.0
_PLANNED_AFTER_S: Final = 1.0
"""How long Spark has to write the offset that it got into its log."""


@dataclass(frozen=True)
class KnownBatch:
    """What the cluster knows of an epoch that is not settled: ``live`` or ``expired``, and how many messages it has."""

    state: str
    count: int


@dataclass(frozen=True)
class Known:
    """What the cluster knows of a subscription: the highest settled epoch, and the batches that are not settled by epoch."""

    settled: int
    batches: dict[int, KnownBatch]

    def state(self, epoch: int) -> str:
        """``live``, ``expired``, ``settled`` or ``unknown``."""
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
        """Reserve up to `count` messages, or learn what the epoch has already; keep the leases alive from now on.

        A provisional lease is short, in case this process dies before anybody else knows of the subscription. It becomes a
        whole one with the next renewal, which comes soon.

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
        """The session of this query, which begins with its first use; the consumer before is fenced then.

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
        """What the cluster knows of the subscription; one it does not know has nothing.

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
        """Remove the messages of all batches up to an epoch for good; returns those of these epochs that had expired.

        Raises:
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
        """
        session = self.session(subscription)
        with _fencing(subscription):
            return self._cluster.call(lambda client: client.settle_batches(subscription, epoch, session=session))

    def abandon(self, subscription: str) -> None:
        """Give the messages of all batches back to their places, uncharged; the next use begins a new session.

        Raises:
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
        """
        session = self.session(subscription)
        with _fencing(subscription):
            self._cluster.call(lambda client: client.abandon_batches(subscription, session=session))
        self._session = None

    def incarnation(self) -> str:
        """The name of the cluster's present life.

        Raises:
            LmqError: the cluster did not answer.
        """
        return self._cluster.call(lambda client: client.incarnation())

    def begin_again(self) -> None:
        """Claim the subscription anew with the next use, because the cluster has forgotten the session."""
        self._session = None

    def slices(self, subscription: str, epoch: int, count: int, slices_min: int) -> list[Slice]:
        """Slices of a batch, none of which begins within a group.

        Raises:
            LmqError: the cluster did not answer.
        """
        wanted, begins = slice_count(count, slices_min), [0]
        if wanted > 1:
            # None for a batch that is not live any more, which those that read it find out.
            begins = self._cluster.call(lambda client: client.cut_batch(subscription, epoch, wanted)) or begins
        session, contact, incarnation = self.session(subscription), self.contact(), self.incarnation()
        return [
            Slice(subscription, epoch, begin, end, session, incarnation, contact)
            for begin, end in zip(begins, [*begins[1:], count], strict=True)
        ]

    def backlog(self, bytes_max: int | None = None, *, queues_max: int | None = None) -> Backlog:
        """Return what could be reserved now, how many messages have so many bytes, and the largest queues.

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
        """Stop renewing and disconnect. The batches stay as they are, for the query to take up again."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        self._cluster.close()

    def _keep(self, subscription: str, renew_in_s: float) -> None:
        with self._turn:
            self._renew_at_s = time.monotonic() + renew_in_s
            self._turn.notify()
            if self._renewer is None:
                # A daemon, because the driver's process may end without calling `close`.
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
                    # Why, the query finds out with its next call.
                    logger.warning("the leases of subscription %r are not renewed any more: %s", subscription, exc)
                    with self._turn:
                        self._renewer = None
                    return
                logger.warning("the leases of subscription %r could not be renewed yet: %s", subscription, exc)
                wait_s = min(self._lease_s / 10, _RETRY_S_MAX)
            else:
                wait_s = min(self._lease_s / 3, _RENEW_S_MAX)
            with self._turn:
                self._renew_at_s = time.monotonic() + wait_s

    def _wait_for_turn(self) -> bool:
        """Wait until the leases have to be renewed; False once this is closed."""
        with self._turn:
            while not self._closed:
                wait_s = self._renew_at_s - time.monotonic()
                if wait_s <= 0:
                    return True
                self._turn.wait(wait_s)
            return False


@contextmanager
def _fencing(subscription: str) -> Iterator[None]:
    """Calls within the block that are refused because of another query raise a `TakenOverError`."""
    try:
        yield
    except LmqError as exc:
        if exc.code == "fenced":
            raise TakenOverError(subscription) from exc
        raise
