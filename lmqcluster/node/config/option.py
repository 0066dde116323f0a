"""An option of a node, defined by the metadata of a `NodeConfig` field."""

from __future__ import annotations

from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Option", "option"]


def option(
    parse: Callable[[object], object],
    help: str,  # noqa: A002  the word that click and argparse use
    *,
    extremes: str,
    metavar: str,
    default: str,
) -> dict[str, Any]:
    """Return the metadata that makes a field of `NodeConfig` an option; `default` is the default value as text for people."""
    return {"parse": parse, "help": help, "extremes": extremes, "metavar": metavar, "default": default}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a node, derived from a field of `NodeConfig`."""

    name: str
    parse: Callable[[object], object]
    help: str
    extremes: str
    metavar: str
    default: str

    @classmethod
    def of(cls, item: Field[Any]) -> Self:
        """Return the option of a field."""
        return cls(name=item.name, **item.metadata)

    @property
    def flag(self) -> str:
        """Return the flag of ``lmq start``."""
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        """Return the name of the environment variable."""
        return "LMQ_" + self.name.upper()
