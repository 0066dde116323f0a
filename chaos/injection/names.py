"""The name server of some processes: what names mean, and how long it takes to look them up."""

from __future__ import annotations

from pathlib import Path

from .tools import interposer

__all__ = ["NameFile"]


class NameFile:
    """The names that the look-ups of some processes find.

    Attributes:
        environment: what a process needs to look up names here.
    """

    def __init__(self, path: Path) -> None:
        self.environment = {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_NAMES": str(path)}
        self._path = path
        self._addresses: dict[str, list[str]] = {}
        self._delays_s: dict[str, float] = {}
        self._write()

    def set(self, name: str, *addresses: str) -> None:
        """Give a name these addresses; without any, there is no such name."""
        self._addresses[name] = list(addresses)
        self._write()

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name."""
        return self._addresses[name]

    def delay(self, delay_s: float, *names: str) -> None:
        """Answer look-ups of these names, or of all, after so many seconds; those that are under way too."""
        self._delays_s |= dict.fromkeys(names or self._addresses, delay_s)
        self._write()

    def _write(self) -> None:
        lines = [
            " ".join([name, str(round(1000 * self._delays_s.get(name, 0))), *addresses])
            for name, addresses in self._addresses.items()
        ]
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text("".join(f"{line}\n" for line in lines))
        unfinished.replace(self._path)
