"""The name server of some processes: the addresses of names, and the duration of look-ups."""

from __future__ import annotations

from pathlib import Path

from .tools import interposer

__all__ = ["NameFile"]


class NameFile:
    """The names that some processes can look up.

    Attributes:
        environment: variables that make a process use these names.
    """

    def __init__(self, path: Path) -> None:
        self.environment = {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_NAMES": str(path)}
        self._path = path
        self._addresses: dict[str, list[str]] = {}
        self._delays_s: dict[str, float] = {}
        self._write()

    def set(self, name: str, *addresses: str) -> None:
        """Set the addresses of a name; without addresses, the name does not exist."""
        self._addresses[name] = list(addresses)
        self._write()

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a name."""
        return self._addresses[name]

    def delay(self, delay_s: float, *names: str) -> None:
        """Delay look-ups of these names, or of all, including those in progress."""
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
