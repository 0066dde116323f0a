"""Runs the examples of a page, which are blocks of the language console, and compares what they print."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Example", "Session", "examples"]

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DATE: Final = re.compile(r"^date: .*$", re.MULTILINE)
_DEADLINE_S: Final = 120.0


@dataclass(frozen=True)
class Example:
    """A command and what the page says that it prints."""

    command: str
    output: str


def examples(text: str) -> Iterator[Example]:
    """All examples of a page, in order."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _newline, output = part.partition("\n")
            yield Example(command, output.rstrip())


@dataclass
class Session:
    """Runs examples one after the other.

    Attributes:
        addresses: addresses of the page, and those that are really used.
        ids: ids of the page, and those that the examples have really got.
    """

    addresses: Mapping[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    def run(self, example: Example) -> None:
        """Run an example.

        Raises:
            AssertionError: it prints something else than the page says.
        """
        done = subprocess.run(
            ["bash", "-c", self._really(example.command)],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), example.command
        printed = done.stdout.replace("\r\n", "\n").rstrip()
        for shown, real in zip(_UUID.findall(example.output), _UUID.findall(printed), strict=False):
            assert self.ids.setdefault(shown, real) == real, example.command
        assert _DATE.sub("date:", printed) == _DATE.sub("date:", self._really(example.output)), example.command

    def _really(self, text: str) -> str:
        for shown, real in {**self.addresses, **self.ids}.items():
            text = text.replace(shown, real)
        return text
