"""A million hidden messages with random visible times: ``python -m tests.benchmarks.hidden [--messages N]``.

They are pushed into one queue of one node through the port for queued's clients, and polled as they become visible. Printed are
the memory for each message, how long a restart takes, and how early or late messages came, by the clock of this machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.integration.canary import rss_bytes
from tests.integration.cluster import NodeProcess
from tests.integration.queued_http import QueuedHttp

BATCH = 5_000
BODY_BYTES = 100


def main() -> None:
    """Run the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="how many (%(default)s)")
    options.add_argument(
        "--seconds", type=int, default=120, metavar="S", help="within which they become visible (%(default)s)"
    )
    given = options.parse_args()
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder, NodeProcess(Path(folder)) as node:
        node.wait_upgraded()
        api = QueuedHttp(node.queued, "msgpack")
        api("PUT", "/queue/q")
        idle = rss_bytes(node)
        # All become visible after the last one is stored and the node has restarted.
        base = time.time() + given.messages / 8_000 + 60
        began = time.monotonic()
        for _start in range(0, given.messages, BATCH):
            messages: list[dict[str, Any]] = []
            for _ in range(BATCH):
                delay = max(1, round(base - time.time() + rng.uniform(0, given.seconds)))
                due = f"{time.time() + delay:.6f}".encode()
                messages.append({"contents": due.ljust(BODY_BYTES), "visibility_timeout_secs": delay})
            api.ok("POST", "/queue/q/messages/push", {"messages": messages})
        print(f"pushed {given.messages:,} in {time.monotonic() - began:.0f} s")
        print(
            f"memory: {(rss_bytes(node) - idle) / given.messages:.0f} bytes a message, of {BODY_BYTES} bytes of contents"
        )
        began = time.monotonic()
        node.restart()
        print(
            f"restart: {time.monotonic() - began:.1f} s until ready, {base - time.time():.0f} s before the first is visible"
        )
        earliest, latest, got = 1e9, -1e9, 0
        while got < given.messages:
            asked = time.time()
            polled = api.poll("q", 10_000, 36_000, wait_secs=30)
            now = time.time()
            for one in polled:
                due_s = float(one["contents"])
                earliest = min(earliest, now - due_s)
                # A message that was due before the poll was sent waited for this program.
                latest = max(latest, now - max(due_s, asked))
            got += len(polled)
        print(f"earliest: {earliest * 1e3:+.0f} ms, latest: {latest * 1e3:+.0f} ms after the visible time")


if __name__ == "__main__":
    main()
