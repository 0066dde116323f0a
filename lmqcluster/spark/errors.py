"""What the data source raises besides the client's `LmqError`; Spark shows the text in its own error."""

from __future__ import annotations

__all__ = ["DataLossError", "ExclusiveQueueError", "LeftBehindError", "OptionError", "SchemaError", "TakenOverError"]


class OptionError(ValueError):
    """An option is missing, unknown or out of range. The text names it and says what to write instead."""

    def __init__(self, option: str, problem: str) -> None:
        """Take the option's name as it is documented, and what is wrong with it."""
        super().__init__(f"lmq: option {option!r} {problem}")
        self.option = option
        self.problem = problem

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.problem)


class SchemaError(ValueError):
    """Columns that cannot be read or written. The text lists all that is wrong with them."""


class DataLossError(RuntimeError):
    """Messages that should be read are not there any more, or may be delivered twice. See the option ``failOnDataLoss``."""


class TakenOverError(RuntimeError):
    """Another query has begun to use the subscription."""

    def __init__(self, subscription: str) -> None:
        """Take the subscription's name."""
        super().__init__(
            f"lmq: subscription {subscription!r} was taken over by another query, which started later. This one can settle "
            "nothing any more, and what it had reserved belongs to the other one. A subscription serves one query: stop one "
            "of them, or give each a name of its own (option 'lmq.subscription')."
        )
        self.subscription = subscription

    def __reduce__(self) -> tuple[type[TakenOverError], tuple[str]]:
        return TakenOverError, (self.subscription,)


class ExclusiveQueueError(RuntimeError):
    """Messages of a queue that should be read go to one session at a time."""

    def __init__(self, queue: str) -> None:
        """Take the queue's name."""
        super().__init__(
            f"lmq: queue {queue!r} is exclusive: its messages go to one session at a time, and a query is none. Nothing is lost. "
            f"Make it an ordinary queue ('lmq-admin queue set {queue} --no-exclusive'), or take it out of the option "
            "'subscribe'. 'failOnDataLoss' does not change this."
        )
        self.queue = queue

    def __reduce__(self) -> tuple[type[ExclusiveQueueError], tuple[str]]:
        return ExclusiveQueueError, (self.queue,)


class LeftBehindError(RuntimeError):
    """A query that ends by itself could not read all that was there when it started."""

    def __init__(self, left: int, reasons: str) -> None:
        """Take how many messages are left, and why."""
        super().__init__(
            f"lmq: {left} messages that were there when the query started could not be read: {reasons}. What was read is stored "
            "and settled, and nothing is lost: run it again when these can be read."
        )
        self.left = left
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[LeftBehindError], tuple[int, str]]:
        return LeftBehindError, (self.left, self.reasons)
