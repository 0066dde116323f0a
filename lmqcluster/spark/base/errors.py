"""Errors of the data source, in addition to the client's `LmqError`; Spark shows their text in its own error."""

from __future__ import annotations

__all__ = ["DataLossError", "ExclusiveQueueError", "LeftBehindError", "OptionError", "SchemaError", "TakenOverError"]


class OptionError(ValueError):
    """An option is missing, unknown or out of range. The text names it and the remedy."""

    def __init__(self, option: str, problem: str) -> None:
        """Take the option's documented name, and the problem."""
        super().__init__(f"lmq: option {option!r} {problem}")
        self.option = option
        self.problem = problem

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.problem)


class SchemaError(ValueError):
    """Columns that cannot be read or written. The text lists all problems."""


class DataLossError(RuntimeError):
    """Messages to read are lost, or may be delivered twice. See the option ``failOnDataLoss``."""


class TakenOverError(RuntimeError):
    """Another query uses the subscription now."""

    def __init__(self, subscription: str) -> None:
        """Take the subscription's name."""
        super().__init__(
            f"lmq: subscription {subscription!r} was taken over by another query, which started later. This one can no longer "
            "settle, and its reserved messages belong to the other one. A subscription serves one query: stop one "
            "of them, or give each its own name (option 'lmq.subscription')."
        )
        self.subscription = subscription

    def __reduce__(self) -> tuple[type[TakenOverError], tuple[str]]:
        return TakenOverError, (self.subscription,)


class ExclusiveQueueError(RuntimeError):
    """The messages of a queue go to one session at a time."""

    def __init__(self, queue: str) -> None:
        """Take the queue's name."""
        super().__init__(
            f"lmq: queue {queue!r} is exclusive: its messages go to one session at a time. Nothing is lost. "
            f"Make it an ordinary queue ('lmq-admin queue set {queue} --no-exclusive'), or remove it from the option "
            "'subscribe'. 'failOnDataLoss' does not change this."
        )
        self.queue = queue

    def __reduce__(self) -> tuple[type[ExclusiveQueueError], tuple[str]]:
        return ExclusiveQueueError, (self.queue,)


class LeftBehindError(RuntimeError):
    """A query that ends by itself could not read all messages that were there at its start."""

    def __init__(self, left: int, reasons: str) -> None:
        """Take the number of messages left, and the reasons."""
        super().__init__(
            f"lmq: {left} messages that existed when the query started could not be read: {reasons}. The others are stored "
            "and settled, and nothing is lost: run the query again when these can be read."
        )
        self.left = left
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[LeftBehindError], tuple[int, str]]:
        return LeftBehindError, (self.left, self.reasons)
