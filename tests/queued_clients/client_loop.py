"""queued's published clients on three nodes, of which one after the other is killed or paused.

``python -m tests.queued_clients.client_loop --seconds 300`` prints the results, and exits with 1 if a message was lost,
was delivered twice within its visibility time, or was stranded by a client that disconnected.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..integration.cluster import Cluster
from ..integration.queued_http import QueuedHttp
from .npm import installed_client
from .work import Work, client, ended

QUEUE = "work"
HIDDEN_S = 15
PRODUCERS, CONSUMERS, VANISHING = 3, 4, 2
FAULT_EVERY_S = (4.0, 8.0)
DRAINED_WITHIN_S = 120.0
WITHOUT_END = 1 << 31


def _names(work: Work, number: int) -> Iterator[str]:
    for place in itertools.count():
        if work.produced.is_set():
            return
        yield f"{number}-{place}"


def _faults(cluster: Cluster, rng: random.Random, until_s: float, work: Work) -> tuple[int, int]:
    """Kill or pause nodes until the time is up; return how often either was done."""
    kills = pauses = 0
    while time.monotonic() < until_s and not work.failures:
        time.sleep(min(rng.uniform(*FAULT_EVERY_S), max(0.0, until_s - time.monotonic())))
        node = rng.choice(cluster.nodes)
        if rng.random() < 0.75:
            kills += 1
            node.kill()
            time.sleep(rng.uniform(0, 2))
            node.start()
        else:
            pauses += 1
            node.pause()
            time.sleep(rng.uniform(1, 5))
            node.resume()
    return kills, pauses


def run(cluster: Cluster, seconds: float, seed: int) -> list[str]:
    """Work for `seconds`, then drain the queue; return the violations, and print the rest."""
    client(cluster.nodes[0].queued).create_queue(QUEUE)
    work, rng = Work(cluster, QUEUE, HIDDEN_S, seed), random.Random(seed)
    producers = [work.start(work.producer(lambda number: _names(work, number)), number) for number in range(PRODUCERS)]
    producers.append(work.javascript(installed_client(), WITHOUT_END))
    for number in range(CONSUMERS):
        work.start(work.consume, number)
    for number in range(VANISHING):
        work.start(work.vanish, number)
    wrong: list[str] = []
    try:
        kills, pauses = _faults(cluster, rng, time.monotonic() + seconds, work)
        print(f"{kills} kills, {pauses} pauses")
        work.end_producing()
        deadline_s = time.monotonic() + DRAINED_WITHIN_S
        api = QueuedHttp(cluster.nodes[0].queued, "msgpack")
        if not ended(lambda: any(one.is_alive() for one in producers), work, deadline_s):
            wrong.append("a producer does not end")
        ended(work.missing, work, deadline_s)
        if not ended(lambda: _left(api), work, deadline_s):
            wrong.append(f"stranded: {_left(api)} messages")
    finally:
        work.stop()
    print(f"{len(work.acknowledged)} acknowledged, {len(work.seen)} deliveries")
    return [
        *wrong,
        *(repr(failure) for failure in work.failures),
        *(f"lost: {name}" for name in sorted(work.missing())),
        *(f"twice within {HIDDEN_S} s: {first} {second}" for first, second in work.doubled()),
    ]


def _left(api: QueuedHttp) -> int:
    metrics = api.ok("GET", f"/queue/{QUEUE}/metrics", Accept="application/msgpack")
    return int(metrics["message_counter"])


def main() -> int:
    """Run the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--seconds", type=float, default=300, help="seconds during which nodes are killed (%(default)s)"
    )
    options.add_argument("--seed", type=int, default=1, help="seed of all random choices (%(default)s)")
    given = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wrong = run(stack.enter_context(Cluster(3, directory=folder)), given.seconds, given.seed)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
