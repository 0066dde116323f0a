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
    """Yield a function that waits up to a number of seconds for keys and returns them; empty if there are none or the
    input ended.

    The terminal does not echo and does not buffer lines during this time; Ctrl-C still interrupts. Standard input must
    be a terminal.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read(timeout_s: float) -> str:
        ready, _, _ = select.select([terminal], [], [], timeout_s)
        pressed = os.read(terminal, 64).decode("ascii", "ignore") if ready else ""
        # Arrow keys and the like are sequences of several characters.
        return "" if pressed.startswith("\x1b") else pressed

    try:
        tty.setcbreak(terminal)
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
