"""The driver's side of a subscription: one connection, and a thread that keeps the batch leases alive."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Final

from lmqcluster import LmqError
from lmqcluster.client import BatchLease

from .backlog import ready_messages
from .connecting import connect, selection_errors
from .options import Connection, Selection

__all__ = ["Known", "KnownBatch", "LeaseKeeper"]

logger = logging.getLogger("lmqcluster.spark")

_RENEW_S_MAX: Final = 600.0
_RETRY_S_MAX: Final = 10.0


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

    def __init__(self, connection: Connection, selection: Selection) -> None:
        """Connect.

        Raises:
            LmqError: no node can be reached.
        """
        self._client = connect(connection)
        self._selection = selection
        self._closed = threading.Event()
        self._renewer: threading.Thread | None = None
        self._lease_s = 0.0

    def reserve(self, subscription: str, epoch: int, count: int, lease_s: float) -> BatchLease:
        """Reserve up to `count` messages, or learn what the epoch has already; keep the leases alive from now on.

        Raises:
            OptionError: the cluster refuses the queue's name or the pattern.
            LmqError: the cluster did not answer.
        """
        with selection_errors(self._selection):
            lease = self._client.reserve_batch(
                subscription, epoch, **self._selection.arguments(), count=count, lease_s=lease_s
            )
        self._keep(subscription, lease_s)
        return lease

    def extend(self, subscription: str, lease_s: float) -> None:
        """Renew all leases of the subscription at once and from now on, with this many seconds each.

        Raises:
            LmqError: the cluster did not answer.
        """
        self._client.renew_batches(subscription, lease_s)
        self._keep(subscription, lease_s)

    def known(self, subscription: str) -> Known:
        """What the cluster knows of the subscription; one it does not know has nothing.

        Raises:
            LmqError: the cluster did not answer.
        """
        found = self._client.subscription(subscription)
        if found is None:
            return Known(0, {})
        return Known(
            found["settled"], {one["epoch"]: KnownBatch(one["state"], one["count"]) for one in found["batches"]}
        )

    def settle(self, subscription: str, epoch: int) -> list[int]:
        """Remove the messages of all batches up to an epoch for good; returns those of these epochs that had expired.

        Raises:
            LmqError: the cluster did not answer.
        """
        return self._client.settle_batches(subscription, epoch)

    def backlog(self, *, if_unknown: int = 0) -> int:
        """How many messages could be reserved now; `if_unknown` where there are none but those whose leases have ended.

        Raises:
            OptionError: the cluster refuses the queue's name or the pattern.
            LmqError: the cluster did not answer.
        """
        return ready_messages(self._client, self._selection, if_unknown=if_unknown)

    def close(self) -> None:
        """Stop renewing and disconnect. The batches stay as they are, for the query to take up again."""
        self._closed.set()
        self._client.close(0)

    def _keep(self, subscription: str, lease_s: float) -> None:
        self._lease_s = lease_s
        if self._renewer is None:
            # A daemon, because the driver's process may end without calling `close`.
            self._renewer = threading.Thread(target=self._renew, args=(subscription,), name="lmq-renew", daemon=True)
            self._renewer.start()

    def _renew(self, subscription: str) -> None:
        wait_s = self._lease_s / 3
        while not self._closed.wait(min(wait_s, _RENEW_S_MAX)):
            try:
                self._client.renew_batches(subscription, self._lease_s)
            except LmqError as exc:
                if self._closed.is_set():
                    return
                logger.warning("the leases of subscription %r could not be renewed yet: %s", subscription, exc)
                wait_s = min(self._lease_s / 10, _RETRY_S_MAX)
            else:
                wait_s = self._lease_s / 3
