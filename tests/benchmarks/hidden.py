"""A million hidden messages with random visible times: ``python -m tests.benchmarks.hidden [--messages N] [--seconds
S]``.

The program pushes them into one queue of three nodes through the port for queued's clients. Then it kills and restarts
the leader, and polls the messages as they become visible. It prints the memory per message, the duration of the
restart, the slowest poll, and how early or late messages arrived by the clock of this machine: early against the time
before their push was sent, late against the time after it was answered.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster, NodeProcess
from tests.integration.queued_http import QueuedHttp

BATCH = 5_000
BODY_BYTES = 100
HOUR_S = 3_600
POLLED_AT_ONCE = 10_000


@dataclass
class Pushes:
    """The pushes: by push, the times of request and answer, in seconds of this machine's clock."""

    sent_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)

    def push(self, api: QueuedHttp, delays_s: list[int]) -> None:
        """Push messages with these delays; a body has the number of its push, and the delay."""
        number = len(self.sent_s)
        messages: list[dict[str, Any]] = [
            {"contents": (b"%d %d" % (number, delay_s)).ljust(BODY_BYTES), "visibility_timeout_secs": delay_s}
            for delay_s in delays_s
        ]
        self.sent_s.append(time.time())
        api.ok("POST", "/queue/q/messages/push", {"messages": messages})
        self.answered_s.append(time.time())

    def due_s(self, contents: bytes) -> tuple[float, float]:
        """Return the times between which a message became visible."""
        number, delay_s = map(int, contents.split())
        return self.sent_s[number] + delay_s, self.answered_s[number] + delay_s


@dataclass
class Lateness:
    """Extremes, in seconds."""

    earliest_s: float = float("inf")
    latest_s: float = float("-inf")
    slowest_s: float = 0.0

    def poll(self, api: QueuedHttp, pushes: Pushes) -> int:
        """Poll visible messages; return their number."""
        asked = time.time()
        polled = api.poll("q", POLLED_AT_ONCE, 10 * HOUR_S)
        now = time.time()
        self.slowest_s = max(self.slowest_s, now - asked)
        for one in polled:
            not_before, not_after = pushes.due_s(one["contents"])
            self.earliest_s = min(self.earliest_s, now - not_before)
            self.latest_s = max(self.latest_s, now - not_after)
        return len(polled)


def _leader(cluster: Cluster) -> NodeProcess:
    return next(
        node for node in cluster if (shown := node.get_json("/v1/cluster"))["self"] == shown["leader"] is not None
    )


def main() -> None:
    """Run the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--messages", type=int, default=1_000_000, metavar="N", help="number of messages (%(default)s)"
    )
    options.add_argument(
        "--seconds", type=int, default=120, metavar="S", help="seconds within which they become visible (%(default)s)"
    )
    options.add_argument(
        "--ahead",
        type=int,
        default=120,
        metavar="S",
        help="seconds from the first push until the first is visible (%(default)s)",
    )
    given = options.parse_args()
    rng, pushes = random.Random(7), Pushes()
    with tempfile.TemporaryDirectory() as folder, Cluster(3, directory=Path(folder)) as cluster:
        leader = _leader(cluster)
        api = QueuedHttp(leader.queued, "msgpack")
        api("PUT", "/queue/q")
        idle = rss_bytes(leader)
        began = time.time()
        base = began + given.ahead
        for _ in range(0, given.messages, BATCH):
            now = time.time()
            pushes.push(api, [max(1, round(base - now + rng.uniform(0, given.seconds))) for _ in range(BATCH)])
        print(f"pushed {given.messages:,} in {time.time() - began:.0f} s")
        print(
            f"memory: {(rss_bytes(leader) - idle) / given.messages:.0f} bytes a message, {BODY_BYTES} of them contents"
        )
        began = time.time()
        leader.restart()
        print(
            f"restart: {time.time() - began:.1f} s until ready, {base - time.time():.0f} s before the first is visible"
        )
        api, seen, got = QueuedHttp(_leader(cluster).queued, "msgpack"), Lateness(), 0
        while got < given.messages:
            got += seen.poll(api, pushes)
        print(f"earliest {seen.earliest_s * 1e3:+.0f} ms, latest {seen.latest_s * 1e3:+.0f} ms after the visible time")
        print(f"slowest poll: {seen.slowest_s * 1e3:.0f} ms for at most {POLLED_AT_ONCE:,} messages")


if __name__ == "__main__":
    main()
