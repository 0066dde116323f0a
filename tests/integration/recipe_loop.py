"""Consumers of the recipes in separate processes that are killed, and nodes that are killed too.

``python -m tests.integration.recipe_loop safe`` has four safe consumers, two with threads and two with asyncio, handle
100,000 items in five minutes: each item is handled, and none by two consumers at once. ``recipe_loop exclusive`` has
four exclusive consumers handle as many as they can, or the given number, strictly in order.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lmqcluster import Client
from lmqcluster.client.recipes import DistributedQueue, QueueOptions, TextSerializer

from .cluster import Cluster, clean_environment, reaper, wait_for

__all__ = ["AT_ONCE", "Consumers", "Outcome", "judge", "recipe_loop"]

QUEUE = "items"
AT_ONCE = 4
"""Items in flight at a consumer that has a pool."""
WAITING_MAX = 5_000
CONSUMER_EVERY_S = (1.0, 4.0)
NODE_EVERY_S = (3.0, 9.0)
PATIENCE_S = 600.0


@dataclass
class Outcome:
    """The fate of the items.

    Attributes:
        begun: number of items that consumers began.
        handled: number of completions of each item.
    """

    items: int
    exclusive: bool
    begun: int = 0
    handled: Counter[int] = field(default_factory=Counter)
    consumers_killed: int = 0
    nodes_killed: int = 0
    elapsed_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        again = sum(self.handled.values()) - len(self.handled)
        return (
            f"{self.items} items, {'one exclusive consumer at a time' if self.exclusive else 'safe consumers'}: "
            f"{len(self.handled)} handled in {self.elapsed_s:.0f} s over {self.consumers_killed} kills of consumers and "
            f"{self.nodes_killed} of nodes; {self.begun} begun, {again} handled again; {len(self.violations)} violations"
        )


def judge(lines: Iterable[str], items: int, exclusive: bool, at_once: int = AT_ONCE) -> Outcome:
    """Judge the lines that consumers wrote, and their ``killed`` records.

    Args:
        at_once: maximum number of items in flight at a consumer, which may be handled again when it is killed.
    """
    found = Outcome(items, exclusive)
    holders: dict[int, str] = {}
    last = -1
    for line in lines:
        what, who, *rest = line.split()
        if what == "killed":
            found.consumers_killed += 1
            holders = {item: holder for item, holder in holders.items() if holder != who}
            continue
        item = int(rest[0])
        if what == "end":
            holders.pop(item, None)
            found.handled[item] += 1
            continue
        found.begun += 1
        if item in holders:
            found.violations.append(f"{who} began {item} while {holders[item]} had it")
        if exclusive and holders:
            found.violations.append(f"{who} began {item} while a consumer had {sorted(holders)}")
        if exclusive and item not in (last, last + 1):
            found.violations.append(f"{who} began {item} after {last}")
        holders[item], last = who, item
    missing = sorted(set(range(items)) - set(found.handled))
    if missing:
        found.violations.append(f"{len(missing)} items were not handled, such as {missing[:5]}")
    again = sum(found.handled.values()) - len(found.handled)
    if again > found.consumers_killed * at_once:
        found.violations.append(f"{again} items were handled again")
    return found


class Consumers:
    """Consumers by name. All of them end with the block."""

    def __init__(self, nodes: list[str], folder: Path, queue: str = QUEUE) -> None:
        self.book = folder / "book"
        self.book.touch()
        self._nodes = nodes
        self._folder = folder
        self._queue = queue
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, flavour: str, *options: str) -> None:
        """Start a consumer."""
        command = [sys.executable, "-m", f"{__package__}.recipe_consumer", flavour, ",".join(self._nodes)]
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, self._queue, str(self.book), name, *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                start_new_session=True,
            )
        reaper.tell("+", process.pid)
        self._running[name] = process

    def kill(self, name: str) -> None:
        """Kill a consumer with SIGKILL, and record its end."""
        process = self._running.pop(name)
        assert process.poll() is None, (self._folder / f"{name}.log").read_text()[-2000:]
        process.send_signal(signal.SIGKILL)
        process.wait()
        reaper.tell("-", process.pid)
        assert process.stdin is not None
        process.stdin.close()
        with self.book.open("a") as book:
            book.write(f"killed {name}\n")

    def freeze(self, name: str) -> None:
        """Pause a consumer at an arbitrary moment."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Resume the consumer."""
        self._running[name].send_signal(signal.SIGCONT)

    def lines(self) -> list[str]:
        """Return the lines written so far."""
        return self.book.read_text().splitlines()

    def handled(self) -> int:
        """Return the number of handled items, repetitions included."""
        return self.book.read_bytes().count(b"end ")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)


class _Nodes(threading.Thread):
    """Kills one node after the other until stopped; every second time the leader."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        super().__init__()
        self.kills = 0
        self._cluster = cluster
        self._rng = rng
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._rng.uniform(*NODE_EVERY_S)):
            victims = [self._cluster.leader()] if self.kills % 2 == 0 else self._cluster.followers()
            self._rng.choice(victims).restart()
            self.kills += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def _options(number: int, exclusive: bool) -> list[str]:
    """Return the options of a consumer; half of the safe consumers have a pool."""
    if exclusive:
        # A short lease: no other consumer has its turn until the lease of a killed one has expired.
        return ["--exclusive", "--prefetch", "64", "--lease", "2", "--hold", "0"]
    return ["--prefetch", "16", "--at-once", str(AT_ONCE if number >= 2 else 1), "--hold", "0.003"]


def _kill_in_turn(consumers: Consumers, exclusive: bool, rng: random.Random, over: float) -> None:
    options = {f"c{number}": ("threads", "aio")[number % 2] for number in range(4)}
    for number, (name, flavour) in enumerate(options.items()):
        consumers.start(name, flavour, *_options(number, exclusive))
    while time.monotonic() < over:
        time.sleep(rng.uniform(*CONSUMER_EVERY_S))
        number = rng.randrange(4)
        name = f"c{number}"
        consumers.kill(name)
        consumers.start(name, options[name], *_options(number, exclusive))


def recipe_loop(
    folder: Path, *, exclusive: bool, items: int | None, seconds: float, seed: int, waiting_max: int = WAITING_MAX
) -> Outcome:
    """Put items and kill for `seconds`; then wait until everything is handled.

    Args:
        items: number of items, put evenly over the time; None for as many as are handled within it.
    """
    rng = random.Random(seed)
    with (
        Cluster(3, directory=folder) as cluster,
        Client(cluster.rpc_addresses) as client,
        DistributedQueue(
            client,
            QUEUE,
            TextSerializer(),
            options=QueueOptions(
                safe=True,
                exclusive=exclusive,
                max_items=waiting_max,
                put_in_background=True,
                final_flush=PATIENCE_S,
            ),
        ) as producer,
        Consumers(cluster.rpc_addresses, folder) as consumers,
    ):
        nodes = _Nodes(cluster, random.Random(seed + 1))
        began = time.monotonic()
        killer = threading.Thread(target=_kill_in_turn, args=(consumers, exclusive, rng, began + seconds))
        nodes.start()
        killer.start()
        count = 0
        while time.monotonic() < began + seconds if items is None else count < items:
            assert producer.put(str(count))
            count += 1
            if items is not None and count % 100 == 0:
                time.sleep(max(0.0, began + seconds * count / items - time.monotonic()))
        killer.join()
        nodes.stop()
        assert producer.flush_puts(PATIENCE_S)
        wait_for(lambda: not _left(cluster), "the last items", PATIENCE_S)
        elapsed_s = time.monotonic() - began
        outcome = judge(consumers.lines(), count, exclusive)
        outcome.nodes_killed, outcome.elapsed_s = nodes.kills, elapsed_s
    return outcome


def _left(cluster: Cluster) -> int:
    found = cluster.leader().get_json(f"/v1/queues/{QUEUE}")
    return int(found["ready"] + found["delayed"] + found["leased"])


def main() -> int:
    """Run the program; return 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.recipe_loop", description=__doc__)
    parser.add_argument("mode", choices=("safe", "exclusive"))
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to put and to kill (default 300)")
    parser.add_argument(
        "--items",
        type=int,
        help="number of items (default: 100,000 for safe consumers, as many as five minutes allow for exclusive ones)",
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses the victims (default: the clock)")
    given = parser.parse_args()
    exclusive = given.mode == "exclusive"
    with tempfile.TemporaryDirectory() as folder:
        outcome = recipe_loop(
            Path(folder),
            exclusive=exclusive,
            items=given.items or (None if exclusive else 100_000),
            seconds=given.seconds,
            seed=given.seed,
            waiting_max=200 if given.items is None and exclusive else WAITING_MAX,
        )
    print(f"seed {given.seed}: {outcome}")
    print("\n".join(outcome.violations[:20]))
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
