"""What the data source raises besides the client's `LmqError`; Spark shows the text in its own error."""

from __future__ import annotations

__all__ = ["DataLossError", "OptionError", "SchemaError"]


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
