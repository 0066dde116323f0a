"""Single keys from a terminal, without waiting for the end of a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["keys"]


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """A function that waits up to so many seconds for a key and returns it; empty if none came, or the input has ended.

    The terminal neither echoes nor collects lines meanwhile; Ctrl-C still interrupts. Standard input must be a terminal.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read(timeout_s: float) -> str:
        ready, _, _ = select.select([terminal], [], [], timeout_s)
        return os.read(terminal, 64)[:1].decode("ascii", "ignore") if ready else ""

    try:
        # Keys that were pressed before are not thrown away.
        tty.setcbreak(terminal, termios.TCSADRAIN)
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
