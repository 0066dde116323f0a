"""Runs the command lines of a page in one shell, and compares what they print with what the page shows.

What differs from run to run is not compared: numbers outside of JSON, sequences, dates, ids, tokens, and which node leads. A line
``...`` of a page stands for any lines. Ids that a page shows and uses again are replaced by those of the run. A page whose every
byte counts is compared exactly, but for dates and times of pushes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.integration.cluster import reaper

__all__ = ["Shell", "Step", "steps"]

DEADLINE_S = 180.0
_MARK = "\x1e"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOKEN = re.compile(r"\blmq_[\w-]{20,}|(?<=aws_secret_access_key = )[\w-]{43}")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Curl sets names of headers in bold on any terminal."""
_NUMBER = re.compile(r"\d[\d,.]*")


class Step(NamedTuple):
    """A command of a page, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]


def steps(text: str, prompts: tuple[str, ...] = ("$ ",)) -> Iterator[Step]:
    """The commands in blocks of the language console; loops and continued lines are one command each."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        command: list[str] = []
        shown: list[str] = []
        is_open = False
        for line in block.splitlines():
            if is_open:
                command.append(line)
                is_open = line.strip() != "done" if command[0].endswith(" do") else line.endswith("\\")
            elif line.startswith(prompts):
                if command:
                    yield Step("\n".join(command), tuple(shown))
                command, shown = [line[2:]], []
                is_open = line.endswith((" do", "\\"))
            elif command:
                shown.append(line)
        if command:
            yield Step("\n".join(command), tuple(shown))


class Shell:
    """A bash whose output is a terminal, for programs print tables there, and whose input is nothing."""

    def __init__(
        self, directory: Path, environment: Mapping[str, str], addresses: Mapping[str, str], *, exact: bool = False
    ) -> None:
        """Start it.

        Args:
            directory: where it runs.
            environment: all its variables.
            addresses: what stands in for the addresses of the pages.
            exact: whether to compare all but dates.
        """
        self._replacements = dict(addresses)
        self._exact = exact
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**environment, "NO_COLOR": "1", "TERM": "xterm"},
            stdin=subprocess.PIPE,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        reaper.tell("+", self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        reaper.tell("-", self._process.pid)
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._master)

    def check(self, step: Step) -> None:
        """Run a command; it must succeed and print what the page shows, if that shows anything."""
        command = self._replaced(step.command)
        code, printed = self.run(command)
        assert code == 0, f"$ {command}\nexit code {code}\n{printed}"
        if not step.shown and not self._exact:
            return
        shown = "\n".join(step.shown)
        ids = dict(zip(_UUID.findall(shown), _UUID.findall(printed), strict=False))
        if self._exact:
            for there, here in ids.items():
                assert self._replacements.setdefault(there, here) == here, (
                    f"$ {command}\nanother id than before: {here}"
                )
            assert _dateless(printed.rstrip()) == _dateless(self._replaced(shown).rstrip()), (
                f"$ {command}\nprinted:\n{printed}\nbut the page shows:\n{shown}"
            )
            return
        self.compare(step, printed)
        self._replacements.update(ids)

    @staticmethod
    def compare(step: Step, printed: str) -> None:
        """Compare what a command printed with what the page shows, if that shows anything."""
        if not step.shown:
            return
        shown = "\n".join(step.shown)
        expected = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in _comparable(shown))
        actual = "".join(f"{line}\n" for line in _comparable(printed))
        assert re.fullmatch(expected, actual), f"$ {step.command}\nprinted:\n{printed}\nbut the page shows:\n{shown}"

    def run(self, command: str) -> tuple[int, str]:
        """Run a command. Returns its exit code and what it printed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '{_MARK}%d{_MARK}' $?\n".encode())
        self._process.stdin.flush()
        data = b""
        deadline = time.monotonic() + DEADLINE_S
        end = re.compile(rf"{_MARK}(\d+){_MARK}\Z".encode())
        poll = select.poll()
        poll.register(self._master, select.POLLIN)
        while (match := end.search(data)) is None:
            assert poll.poll(max(0, deadline - time.monotonic()) * 1000), f"{command}: {data!r}"
            data += os.read(self._master, 65536)
        return int(match[1]), _STYLE.sub("", data[: match.start()].decode()).replace("\r", "")

    def _replaced(self, command: str) -> str:
        if not self._replacements:
            return command
        pattern = re.compile("|".join(sorted(map(re.escape, self._replacements), key=len, reverse=True)))
        return pattern.sub(lambda match: self._replacements[match[0]], command)


def _dateless(text: str) -> str:
    return re.sub(r'"pushed_at": ?[\d.]+', '"pushed_at":0', re.sub(r"(?im)^date: .*", "date:", text))


def _comparable(text: str) -> list[str]:
    """The lines of a text without what differs from run to run, blank lines, and the width of columns."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"(?i)^date: .*", "date: D", line)  # noqa: PLW2901
        line = _TOKEN.sub("TOKEN", _UUID.sub("ID", line))  # noqa: PLW2901
        line = re.sub(r'"sequence":\d+', '"sequence":N', line)  # noqa: PLW2901
        if not line.startswith(("{", "...")):
            line = _NUMBER.sub("N", line)  # noqa: PLW2901
        line = re.sub(r"\b(?:leader|follower)\b(?= +N:)", "ROLE", " ".join(line.split()))  # noqa: PLW2901
        line = re.sub(r"\bleader nN in\b", "leader NODE in", line)  # noqa: PLW2901
        if line:
            lines.append(line)
    return lines
