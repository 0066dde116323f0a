"""Errors of a query whose messages are lost or may be read twice: cause, effect and remedy."""

from __future__ import annotations

from ..base.errors import DataLossError

__all__ = [
    "expired_unsettled", "lease_lost", "partly_gone", "restored", "settled_elsewhere", "unknown", "unreadable",
]  # fmt: skip


def lease_lost(subscription: str, epoch: int, reason: str) -> DataLossError:
    """Return the error for a batch that cannot be read, or may have been delivered to others too."""
    return DataLossError(
        f"lmq: batch {epoch} of subscription {subscription!r} is no longer leased ({reason}). Its messages returned to "
        "their queues when the lease expired, and follow in a later batch. Set the option 'failOnDataLoss' to false to "
        "continue, and 'lmq.lease' to more seconds than the query may be stopped."
    )


def unreadable(subscription: str, epoch: int, state: str) -> DataLossError:
    """Return the error for a planned batch that cannot be read."""
    if state == "settled":
        return settled_elsewhere(subscription, epoch, epoch)
    return unknown(subscription, epoch) if state == "unknown" else lease_lost(subscription, epoch, f"it is {state}")


def unknown(subscription: str, epoch: int) -> DataLossError:
    return DataLossError(
        f"lmq: the cluster does not know batch {epoch} of subscription {subscription!r}, which is in the checkpoint: the "
        "subscription was removed or released ('lmq-admin subscription rm', 'abandon'), it was not used for 30 days, or the "
        "cluster was restored from a backup. Messages of the batch that the sink may have are in their "
        "queues again and may be read twice. Set the option 'failOnDataLoss' to false to continue."
    )


def expired_unsettled(subscription: str, epoch: int) -> DataLossError:
    return DataLossError(
        f"lmq: the lease of batch {epoch} of subscription {subscription!r} expired after the query had read it and before it "
        "could be settled. Its messages returned to their queues and may be read twice. Set the option 'failOnDataLoss' "
        "to false to continue, and 'lmq.lease' to more seconds than the query may be stopped."
    )


def settled_elsewhere(subscription: str, first: int, last: int) -> DataLossError:
    return DataLossError(
        f"lmq: batches {first} to {last} of subscription {subscription!r} were settled by another query or under another "
        "checkpoint, for example if this one is an older copy: their messages are removed, and this query cannot read them. Give "
        "each query its own subscription (option 'lmq.subscription'), use the newest checkpoint, or set 'failOnDataLoss' to "
        "false to continue after them."
    )


def partly_gone(subscription: str, epoch: int, reason: str) -> DataLossError:
    """Return the error for a batch with lost messages, because a queue was deleted before the query had read it."""
    return DataLossError(
        f"lmq: batch {epoch} of subscription {subscription!r} cannot be read completely: {reason}. They are lost; the "
        "sink has them only if an earlier attempt at the micro-batch has stored them. Set the option 'failOnDataLoss' to false "
        "to continue without them: all other messages of the batch are read."
    )


def restored(epoch: int, before: str, now: str) -> DataLossError:
    """Return the error for a query whose cluster has returned to an earlier state."""
    return DataLossError(
        f"lmq: the cluster was restored from a backup, or lost the end of its log, after batch {epoch} was planned: "
        f"its incarnation is {now}, that of the checkpoint is {before}. Messages pushed since the backup are lost, messages read "
        "since then are read again, and offsets are reused: compare the sink with the queues, by the columns "
        "'incarnation' and 'offset'. Set the option 'failOnDataLoss' to false to continue; it can be true again after the next "
        "micro-batch."
    )
