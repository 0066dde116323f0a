"""A node whose log is a pipe without a reader: it serves all requests and stops on request.

By hand, with any number of requests: ``python -m tests.integration.unread_log --requests 1000000``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from .cluster import NodeProcess, fetch
from .raw_rpc import Rpc, request

__all__ = ["PipedNode", "dropped_lines", "send"]

WINDOW = 1_000
"""Number of requests that are sent together."""


class PipedNode(NodeProcess):
    """A node whose output is a pipe.

    Attributes:
        reader: the reading end of the pipe.
    """

    reader = -1

    def open_log(self) -> IO[bytes]:
        self.reader, writer = os.pipe()
        return os.fdopen(writer, "wb")

    def end(self) -> None:
        super().end()
        os.close(self.reader)


def send(node: NodeProcess, requests: int) -> int:
    """Push `requests` messages, each with one request, over one connection; return how many were stored."""
    stored = 0
    with Rpc(node.rpc) as client:
        for first in range(0, requests, WINDOW):
            count = min(WINDOW, requests - first)
            client.send(b"".join(request(number, "push", "jobs", "x") for number in range(count)))
            stored += sum(client.read().error is None for _ in range(count))
    return stored


def dropped_lines(node: NodeProcess) -> int:
    """Return the number of log lines that the node reports as dropped."""
    _status, body = fetch(node.http, "/metrics", timeout_s=60.0)
    (line,) = [line for line in body.decode().splitlines() if line.startswith("lmq_log_lines_dropped_total ")]
    return int(float(line.split()[1]))


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    requests: int = parser.parse_args().requests
    with (
        tempfile.TemporaryDirectory() as folder,
        PipedNode(Path(folder), arguments=("--request-log", "on", "--durability", "memory")) as node,
    ):
        began_s = time.monotonic()
        stored = send(node, requests)
        took_s = time.monotonic() - began_s
        dropped = dropped_lines(node)
        began_s = time.monotonic()
        code = node.stop()
        print(f"{stored:,} of {requests:,} requests served in {took_s:.0f} s; {dropped:,} lines of the log dropped")
        print(f"after SIGTERM it ended with {code} within {time.monotonic() - began_s:.1f} s")
    return 0 if stored == requests and dropped and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
