"""The sink of commands of plain pushes."""

from __future__ import annotations

from ....core.log.results import PushFlag
from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand
from .push_items import refusal_of

__all__ = ["FlagSink"]


class FlagSink:
    """Takes the flags of commands of plain pushes, with a future for each."""

    def completed(self, pending: PendingCommand, flags: list[int]) -> None:
        """Answer each push."""
        for future, flag in zip(pending.requests, flags, strict=True):
            if future.done():
                continue
            if flag < PushFlag.FULL:
                future.set_result(flag)
            else:
                future.set_exception(refusal_of(flag))

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Fail each push."""
        for future in pending.requests:
            if not future.done():
                future.set_exception(error.again())
