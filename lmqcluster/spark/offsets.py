"""Where a streaming query stands, as Spark keeps it in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from .errors import OptionError

__all__ = ["Offset"]


@dataclass(frozen=True)
class Offset:
    """The end of a micro-batch.

    Attributes:
        subscription: name of the subscription that holds the batch leases.
        epoch: the last epoch of the micro-batch, 0 before the first.
        first: its first epoch; above `epoch` where nothing was read yet. Epochs between the end of the micro-batch before and
            this one were never part of the stream: their leases had expired before Spark planned them.
        source: which queues are read, as text; None in checkpoints that do not tell.
    """

    subscription: str
    epoch: int
    first: int
    source: str | None = None

    @classmethod
    def initial(cls, subscription: str, settled: int, source: str | None = None) -> Self:
        """The start of a new query, behind the epochs that the subscription has settled."""
        return cls(subscription, settled, settled + 1, source)

    @classmethod
    def parse(cls, json: Mapping[str, Any]) -> Self:
        """Read what `json` wrote.

        Raises:
            OptionError: the checkpoint belongs to another data source.
        """
        try:
            return cls(str(json["subscription"]), int(json["epoch"]), int(json["first"]), json.get("source"))
        except (KeyError, TypeError, ValueError) as exc:
            raise OptionError(
                "checkpointLocation", f"holds an offset that lmq did not write, {dict(json)!r}: use another checkpoint"
            ) from exc

    def json(self) -> dict[str, Any]:
        """As Spark wants it."""
        told = {} if self.source is None else {"source": self.source}
        return {"subscription": self.subscription, "epoch": self.epoch, "first": self.first, **told}

    @property
    def epochs(self) -> range:
        """The epochs of the micro-batch, in reading order."""
        return range(self.first, self.epoch + 1)
