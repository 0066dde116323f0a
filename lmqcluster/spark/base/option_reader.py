"""Typed access to the options as given."""

from __future__ import annotations

from collections.abc import Mapping

from lmqcluster.wire.limits import NAME_BYTES_MAX

from .errors import OptionError
from .reference import Operation, check_name

__all__ = ["OptionReader"]


class OptionReader:
    """Options of one read or write."""

    def __init__(self, options: Mapping[str, str], operation: Operation | None) -> None:
        """Take the options of an operation; None for a read whose kind is not known yet.

        Raises:
            OptionError: an option does not exist, or is for another operation.
        """
        self._values: dict[str, str] = {}
        for name, value in options.items():
            check_name(name, operation)
            self._values[name.lower()] = value

    def text(self, name: str) -> str | None:
        """Return a value without surrounding blanks; None if it was not given."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise OptionError(name, "is empty")
        return value.strip()

    def name(self, name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
        """Return a text of at most `bytes_max` bytes."""
        value = self.text(name)
        if value is not None and len(value.encode()) > bytes_max:
            raise OptionError(name, f"must have at most {bytes_max} bytes, not {len(value.encode())}")
        return value

    def integer(self, name: str, least: int, most: int, *, default: int) -> int:
        """Return a whole number within bounds."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise OptionError(name, f"must be a whole number from {least} to {most}, not {value!r}")
        return number

    def seconds(self, name: str, most: int, *, default: float) -> float:
        """Return a time above 0."""
        value = self.number(name, most, "number of seconds")
        return default if value is None else value

    def number(self, name: str, most: int, what: str = "number") -> float | None:
        """Return a number above 0; None if it was not given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number <= most:
            raise OptionError(name, f"must be a {what} above 0 and at most {most}, not {value!r}")
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return a value of true or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in {"true", "false"}:
            raise OptionError(name, f"must be true or false, not {value!r}")
        return value.lower() == "true"
