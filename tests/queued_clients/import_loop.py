"""``lmq-admin import queued`` killed repeatedly: ``python -m tests.queued_clients.import_loop --queued PROGRAM``.

The source is the real queued. The importer is killed with SIGKILL at random moments and restarted, until the source is
empty. Then the source is restarted too, because until then it hides messages whose poll was cut off, and the import
ends. The program prints how often a kill came between storing here and deleting there, how many messages the source had
hidden, and the arrived messages: every message once, or it exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..benchmarks.queued import real_queued
from ..integration.cluster import Cluster, clean_environment
from ..integration.programs import command_line
from ..integration.queued_http import QueuedHttp

QUEUE = "q"
PUSHED_AT_ONCE = 1_000
PATIENCE_S = 120


@dataclass
class Observed:
    """The observations.

    Attributes:
        kills: kills of the importer.
        overlaps: after each, the number of messages in both places, including those of earlier kills.
        stranded: number of messages that the source had hidden until its restart.
        arrived: number of copies of each body in the cluster.
    """

    kills: int
    overlaps: list[int]
    stranded: int
    arrived: Counter[bytes]

    def is_right(self, bodies: Sequence[bytes]) -> bool:
        """Return whether every message arrived once."""
        return self.arrived == Counter(bodies)


def _left(api: QueuedHttp) -> int:
    figures = api.ok("GET", f"/queue/{QUEUE}/metrics", Accept="application/msgpack")
    return int(figures["message_counter"])


@contextlib.contextmanager
def _importer(source: str, node: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = command_line("lmq-admin", "--node", node, "import", "queued", f"http://{source}", "--queue", QUEUE, *more)
    process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _killed(source: QueuedHttp, cluster: Cluster, rng: random.Random, kills: int, total: int) -> list[int]:
    """Kill importers as they work; return the overlaps."""
    overlaps: list[int] = []
    for number in range(kills):
        before = _left(source)
        with _importer(source.address, cluster.nodes[number % len(cluster.nodes)].http) as process:
            # Not before it works; then at any moment of its rounds.
            while _left(source) == before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.3))
            process.kill()
            process.wait()
        here = _left(QueuedHttp(cluster.nodes[0].queued, "msgpack"))
        overlaps.append(here + _left(source) - total)
    return overlaps


def _finish(address: str, node: str) -> None:
    """Run the importer until nothing is visible or leased there, except messages that the source has hidden."""
    with _importer(address, node, "--wait") as process, contextlib.suppress(subprocess.TimeoutExpired):
        code = process.wait(PATIENCE_S)
        if code:
            raise RuntimeError(f"the importer ended with {code}")


def _arrived(api: QueuedHttp) -> Counter[bytes]:
    """Return everything that is in the cluster."""
    arrived: Counter[bytes] = Counter()
    while polled := api.poll(QUEUE, 10_000, 3_600):
        arrived.update(one["contents"] for one in polled)
    return arrived


def run(program: Path, bodies: Sequence[bytes], kills: int, seed: int, outage_s: float) -> Observed:
    """Import while the importer is killed."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        cluster = stack.enter_context(Cluster(3, directory=folder))
        data = folder / "queued"
        with real_queued(program, data) as system:
            source = QueuedHttp(system.addresses[0], "msgpack")
            source.ok("PUT", f"/queue/{QUEUE}")
            for start in range(0, len(bodies), PUSHED_AT_ONCE):
                source.push(QUEUE, *bodies[start : start + PUSHED_AT_ONCE])
            overlaps = _killed(source, cluster, rng, kills, len(bodies))
            time.sleep(outage_s)
            _finish(source.address, cluster.nodes[0].http)
            address = source.address
        with real_queued(program, data, address):
            stranded = _left(source)
            _finish(address, cluster.nodes[1].http)
        return Observed(kills, overlaps, stranded, _arrived(QueuedHttp(cluster.nodes[2].queued, "msgpack")))


def main() -> int:
    """Run the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--queued", type=Path, required=True, metavar="PROGRAM", help="the real one")
    options.add_argument("--messages", type=int, default=50_000, metavar="N", help="number of messages (%(default)s)")
    options.add_argument("--kills", type=int, default=20, metavar="N", help="kills of the importer (%(default)s)")
    options.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the moments (%(default)s)")
    options.add_argument(
        "--outage", type=float, default=0.0, metavar="S", help="seconds after the last kill (%(default)s)"
    )
    given = options.parse_args()
    bodies = [b"%08d" % number for number in range(given.messages)]
    observed = run(given.queued, bodies, given.kills, given.seed, given.outage)
    twice = sum(count > 1 for count in observed.arrived.values())
    missing = len(set(bodies) - set(observed.arrived))
    print(f"{observed.kills} kills; messages here and still there after each: {observed.overlaps}")
    print(f"{observed.stranded} messages were hidden in the source until it was restarted")
    print(f"{observed.arrived.total()} arrived, {missing} missing, {twice} twice")
    return 0 if observed.is_right(bodies) else 1


if __name__ == "__main__":
    sys.exit(main())
