"""What the data source raises besides the client's `LmqError`; Spark shows the text in its own error."""

from __future__ import annotations

__all__ = ["DataLossError", "OptionError", "SchemaError", "TakenOverError"]


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
