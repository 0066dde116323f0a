"""``python -m tests.benchmarks.compare_commits BEFORE [AFTER]``: processor time per operation of two commits.

Both run side by side, as clusters of three nodes and as single nodes, in durability ``disk``. Short measurements
alternate (A B B A) for pushes, pulls and acks over MessagePack-RPC and for pushes over HTTP. The processor time of all
nodes of a cluster counts, not the time that passes. Other work on the machine still slows the nodes down, by caches and
shared cores, so each ratio is that of neighbours, and the interval of its median says how much it is worth.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.integration.cluster import Cluster
from tests.integration.raw_http import Connection
from tests.integration.raw_rpc import Rpc

__all__ = ["Ratio", "Side", "compare"]

ROOT: Final = Path(__file__).parents[2]
SIZES: Final = (3, 1)
"""Nodes of a cluster."""
WINDOW: Final = 256
"""MessagePack-RPC requests that are sent together; all are answered before the next ones are sent."""
CONNECTIONS: Final = 64
"""HTTP connections, with one request each."""
QUEUE: Final = "compare"
BODY: Final = b"x" * 100
WARM_UP_WINDOWS: Final = 20
OPERATIONS: Final = ("push", "pull", "done", "HTTP push")


def check_out(commit: str, folder: Path) -> Path:
    """Return the folder of a working tree, or unpack a commit of this repository into `folder`."""
    if Path(commit).is_dir():
        return Path(commit).resolve()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def link_packages(tree: Path, folder: Path) -> Path:
    """Make a folder from which Python imports the packages of `tree`, whatever is installed."""
    folder.mkdir()
    settings = tomllib.loads((tree / "pyproject.toml").read_text())
    places = {"lmqcluster": "lmqcluster", **settings["tool"]["setuptools"]["package-dir"]}
    for package, place in places.items():
        if package.isidentifier():
            (folder / package).symlink_to(tree / place)
    show = "import lmqcluster, lmqcluster_cli; print(lmqcluster.__file__, lmqcluster_cli.__file__)"
    environment = os.environ | importing(folder)
    shown = subprocess.run([sys.executable, "-c", show], env=environment, capture_output=True, check=True)
    files = shown.stdout.decode().split()
    assert all(Path(file).is_relative_to(folder) for file in files), files
    return folder


def importing(folder: Path) -> dict[str, str]:
    """Return the environment of a Python that imports the packages of this folder, not those of the current one."""
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"}


class Side:
    """A cluster that runs one of the two commits, with a connection to each node."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._cluster = cluster
        leader = cluster.leader()
        self._all = [stack.enter_context(Rpc(node.rpc)) for node in cluster]
        self._rpc = stack.enter_context(Rpc(leader.rpc))
        self._http = leader.http
        self._pulled: deque[Any] = deque()

    def measure(self, operation: str, windows: int) -> float:
        """Return microseconds of processor time for each request; a pull needs an earlier push, a done an earlier pull."""
        if operation == "HTTP push":
            # A node closes idle connections, so each measurement opens new ones.
            with ExitStack() as stack:
                connections = [stack.enter_context(Connection(self._http)) for _ in range(CONNECTIONS)]
                return self._measured(windows, CONNECTIONS, lambda: self._push_over_http(connections))
        window = {"push": self._push, "pull": self._pull, "done": self._done}[operation]
        return self._measured(windows, WINDOW, window)

    def clear(self) -> None:
        """Delete the queue."""
        self._rpc.call("delete", QUEUE)

    def _measured(self, windows: int, size: int, window: Callable[[], object]) -> float:
        self._catch_up()
        before_ns = self._processor_ns()
        for _ in range(windows):
            window()
        self._catch_up()
        return (self._processor_ns() - before_ns) / 1e3 / (windows * size)

    def _push(self) -> None:
        self._calls([("push", QUEUE, BODY)] * WINDOW)

    def _pull(self) -> None:
        self._pulled += self._calls([("pull", QUEUE, 0)] * WINDOW)

    def _done(self) -> None:
        self._calls([("done", QUEUE, self._pulled.popleft()[b"id"]) for _ in range(WINDOW)])

    def _catch_up(self) -> None:
        """Wait until every node has applied the earlier pushes."""
        for rpc in self._all:
            rpc.call("push", "caught-up", b"")

    def _calls(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        replies = self._rpc.many(requests)
        errors = [reply.error for reply in replies if reply.error is not None]
        assert not errors, errors[0]
        return [reply.result for reply in replies]

    def _push_over_http(self, connections: Sequence[Connection]) -> None:
        for connection in connections:
            connection.ask("POST", f"/messages/{QUEUE}", BODY, {"Content-Type": "text/plain"})
        for connection in connections:
            answer = connection.read()
            assert answer.status == 200, answer

    def _processor_ns(self) -> int:
        """Return the processor time of all threads of all nodes, finer than the ticks of ``/proc/PID/stat``."""
        tasks = (task for node in self._cluster for task in Path(f"/proc/{node.pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


@contextmanager
def running(packages: Sequence[Path], size: int) -> Iterator[list[Side]]:
    """Start a cluster of each."""
    with ExitStack() as stack:
        clusters = []
        for folder in packages:
            cluster = Cluster(size, arguments=("--durability", "disk"), environment=importing(folder))
            stack.callback(cluster.stop)
            clusters.append(cluster)
        for cluster in clusters:
            for node in cluster:
                # An earlier commit may not have these ports.
                node.queued = node.sqs = ""
                node.start(wait=False)
        yield [Side(cluster, stack) for cluster in clusters]


def compare(sides: Sequence[Side], windows: int) -> dict[str, tuple[float, float]]:
    """Return the cost of each operation before and after, in microseconds, from measurements in the order A B B A."""
    costs = {}
    for operation in OPERATIONS:
        measured: tuple[list[float], list[float]] = ([], [])
        for which in (0, 1, 1, 0):
            measured[which].append(sides[which].measure(operation, windows))
        costs[operation] = (statistics.fmean(measured[0]), statistics.fmean(measured[1]))
    for side in sides:
        side.clear()
    return costs


@dataclass(frozen=True)
class Ratio:
    """The ratio of two costs: the median of many, its interval of 95 % confidence, the least and the greatest."""

    median: float
    low: float
    high: float
    least: float
    greatest: float

    @classmethod
    def of(cls, costs: Sequence[tuple[float, float]]) -> Ratio:
        """Divide the second by the first cost of each pair. The interval is that of order statistics."""
        ratios = sorted(after / before for before, after in costs)
        reach = 0.98 * math.sqrt(len(ratios))
        low, high = math.floor(len(ratios) / 2 - reach), math.ceil(len(ratios) / 2 + reach)
        return cls(
            statistics.median(ratios),
            ratios[max(low, 0)],
            ratios[min(high, len(ratios) - 1)],
            ratios[0],
            ratios[-1],
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare_commits", description=__doc__)
    parser.add_argument("before", help="a commit, or the folder of a working tree")
    parser.add_argument("after", nargs="?", default=str(ROOT), help="likewise (default: this working tree)")
    parser.add_argument("--rounds", type=int, default=3, help="each starts new nodes (default %(default)s)")
    parser.add_argument("--turns", type=int, default=40, help="comparisons in a round (default %(default)s)")
    parser.add_argument(
        "--windows", type=int, default=5, help="of 256 requests (64 over HTTP) in a measurement (default %(default)s)"
    )
    given = parser.parse_args(arguments)
    print(
        "| nodes | operation | before, us | after, us | ratio | 95 % | least, greatest |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as directory:
        packages = []
        for name, commit in (("before", given.before), ("after", given.after)):
            tree = check_out(commit, Path(directory, name))
            packages.append(link_packages(tree, Path(directory, f"packages-{name}")))
        for size in SIZES:
            found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
            for _ in range(given.rounds):
                with running(packages, size) as sides:
                    compare(sides, WARM_UP_WINDOWS)
                    for _ in range(given.turns):
                        for operation, costs in compare(sides, given.windows).items():
                            found[operation].append(costs)
            for operation, pairs in found.items():
                before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
                ratio = Ratio.of(pairs)
                print(
                    f"| {size} | {operation} | {before:.2f} | {after:.2f} | {ratio.median:.3f} "
                    f"| {ratio.low:.3f} to {ratio.high:.3f} | {ratio.least:.3f}, {ratio.greatest:.3f} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
