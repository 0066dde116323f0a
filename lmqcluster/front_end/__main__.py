"""``python -m lmqcluster.front_end SETTINGS``: started by a node, not by people."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from ..node.access.tls import ServerTls
from ..node.process.event_loop import loop_factory
from ..node.process.logs import configure_logging
from .front_end import FrontEnd

_PR_SET_PDEATHSIG = 1


async def run(settings: dict[str, Any]) -> None:
    """Serve until the node ends."""
    files = settings["tls"]
    tls = None if files is None else ServerTls(Path(files[0]), Path(files[1]), Path(files[2]) if files[2] else None)
    front_end = FrontEnd(tls)
    await front_end.start(socket.socket(fileno=settings["channel"]), settings["ports"])
    await front_end.ended.wait()
    await front_end.finish()


def main() -> None:
    """Run the program."""
    # The node ends its front ends after it has answered its clients, whatever signal the process group gets.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    settings = json.loads(sys.argv[1])
    _end_with_the_node(settings["node"])
    configure_logging(settings["log_level"], settings["log_format"])
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(settings))


def _end_with_the_node(pid: int) -> None:
    """Make the kernel end this process when the node is killed, so that a new node can listen on the ports at once."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    # Without it, the end of the channel ends the process, a little later.
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != pid:
        raise SystemExit("the node has ended already")


if __name__ == "__main__":
    main()
