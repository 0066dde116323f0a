"""The position of a streaming query, as Spark stores it in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..base.errors import OptionError
from ..base.options import Selection

__all__ = ["Offset"]


@dataclass(frozen=True)
class Offset:
    """The end of a micro-batch.

    Attributes:
        subscription: name of the subscription that holds the batch leases.
        epoch: the last epoch of the micro-batch, 0 before the first.
        first: its first epoch; above `epoch` if nothing was read yet. Epochs between the previous micro-batch and this
            one were never part of the stream: their leases had expired before Spark planned them.
        selection: the queues that were read.
        incarnation: the incarnation of the cluster that the epochs belong to.
    """

    subscription: str
    epoch: int
    first: int
    selection: Selection
    incarnation: str

    @classmethod
    def initial(cls, subscription: str, settled: int, selection: Selection, incarnation: str) -> Self:
        """Return the start of a new query, after the epochs that the subscription has settled."""
        return cls(subscription, settled, settled + 1, selection, incarnation)

    @classmethod
    def parse(cls, json: Mapping[str, Any]) -> Self:
        """Parse the result of `json`.

        Raises:
            OptionError: the checkpoint belongs to another data source.
        """
        try:
            selection = Selection(tuple(map(str, json["queues"])), json["pattern"])
            epochs = int(json["epoch"]), int(json["first"])
            return cls(str(json["subscription"]), *epochs, selection, str(json["incarnation"]))
        except (KeyError, TypeError, ValueError) as exc:
            raise OptionError(
                "checkpointLocation",
                f"contains an offset that lmq did not write, {dict(json)!r}: use another checkpoint",
            ) from exc

    def json(self) -> dict[str, Any]:
        """Return the offset in Spark's form."""
        return {
            "subscription": self.subscription,
            "epoch": self.epoch,
            "first": self.first,
            "queues": list(self.selection.queues),
            "pattern": self.selection.pattern,
            "incarnation": self.incarnation,
        }

    @property
    def epochs(self) -> range:
        """Return the epochs of the micro-batch, in reading order."""
        return range(self.first, self.epoch + 1)

    def check(self, subscription: str | None, selection: Selection) -> None:
        """Refuse to continue with another subscription, or with entirely different queues.

        Queues may be added, removed and reordered. Reserved messages of a removed queue are still read.

        Raises:
            OptionError: see above.
        """
        if subscription is not None and subscription != self.subscription:
            raise OptionError(
                "lmq.subscription",
                f"is {subscription!r}, but the checkpoint belongs to {self.subscription!r}: use this name or another checkpoint",
            )
        before = self.selection
        if selection.pattern != before.pattern or (before.queues and not set(before.queues) & set(selection.queues)):
            raise OptionError(
                "subscribePattern" if selection.pattern is not None else "subscribe",
                f"selects {selection}, but the checkpoint belongs to {before}: keep at least one of its queues, or use another "
                "checkpoint",
            )
