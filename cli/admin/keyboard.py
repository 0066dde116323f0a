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
    """A function that waits up to so many seconds for keys and returns those pressed; none if none were, or the input ended.

    The terminal neither echoes nor collects lines meanwhile; Ctrl-C still interrupts. Standard input must be a terminal.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read(timeout_s: float) -> str:
        ready, _, _ = select.select([terminal], [], [], timeout_s)
        pressed = os.read(terminal, 64).decode("ascii", "ignore") if ready else ""
        # Arrow keys and the like come as several characters, which mean nothing one by one.
        return "" if pressed.startswith("\x1b") else pressed

    try:
        tty.setcbreak(terminal)
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
