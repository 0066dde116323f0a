"""``python -m tests.benchmarks.compare_commits BEFORE [AFTER]``: processor time per operation of two commits.

Both run side by side, as clusters of three nodes and as single nodes, in durability ``disk``. Turns alternate (A B B A ...).
A turn pushes, pulls and acknowledges over MessagePack-RPC, and pushes over HTTP. The processor time of all nodes of a
cluster counts, not the time that passes, so other work on the machine distorts little. Every turn of AFTER is divided
by the turn of BEFORE beside it; the median, the least and the greatest of these ratios are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.integration.cluster import Cluster
from tests.integration.raw_http import Connection
from tests.integration.raw_rpc import Rpc

__all__ = ["Side", "order", "ratios"]

ROOT: Final = Path(__file__).parents[2]
SIZES: Final = (3, 1)
"""Nodes of a cluster."""
WINDOW: Final = 256
"""MessagePack-RPC requests that are sent together; all are answered before the next ones are sent."""
CONNECTIONS: Final = 64
"""Over HTTP, with one request each."""
BODY: Final = b"x" * 100
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
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    shown = subprocess.run([sys.executable, "-c", show], cwd=folder, env=environment, capture_output=True, check=True)
    files = shown.stdout.decode().split()
    assert all(Path(file).is_relative_to(folder) for file in files), files
    return folder


class Side:
    """A cluster that runs one of the two commits, with a connection to each node."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._cluster = cluster
        leader = cluster.leader()
        self._all = [stack.enter_context(Rpc(node.rpc)) for node in cluster]
        self._rpc = stack.enter_context(Rpc(leader.rpc))
        self._http = leader.http
        self._turns = 0

    def turn(self, count: int, http_count: int) -> dict[str, float]:
        """Return microseconds of processor time for each operation."""
        self._turns += 1
        queue = f"compare-{self._turns}"
        pulled: list[Any] = []
        found = {
            "push": self._measured(count, WINDOW, lambda: self._calls([("push", queue, BODY)] * WINDOW)),
            "pull": self._measured(count, WINDOW, lambda: pulled.extend(self._calls([("pull", queue, 0)] * WINDOW))),
        }
        acks = iter([("done", queue, message[b"id"]) for message in pulled])
        found["done"] = self._measured(count, WINDOW, lambda: self._calls([next(acks) for _ in range(WINDOW)]))
        # A node closes idle connections, so each turn opens its own.
        with ExitStack() as stack:
            connections = [stack.enter_context(Connection(self._http)) for _ in range(CONNECTIONS)]
            found["HTTP push"] = self._measured(
                http_count, CONNECTIONS, lambda: self._push_over_http(connections, queue)
            )
        self._rpc.call("delete", queue)
        return found

    def _measured(self, count: int, window: int, send: Callable[[], object]) -> float:
        self._catch_up()
        before_ns = self._processor_ns()
        for _ in range(count // window):
            send()
        self._catch_up()
        return (self._processor_ns() - before_ns) / 1e3 / (count // window * window)

    def _catch_up(self) -> None:
        """Wait until every node has applied what was pushed before."""
        for rpc in self._all:
            rpc.call("push", "caught-up", b"")

    def _calls(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        replies = self._rpc.many(requests)
        errors = [reply.error for reply in replies if reply.error is not None]
        assert not errors, errors[0]
        return [reply.result for reply in replies]

    def _push_over_http(self, connections: Sequence[Connection], queue: str) -> None:
        for connection in connections:
            connection.ask("POST", f"/messages/{queue}", BODY, {"Content-Type": "text/plain"})
        for connection in connections:
            answer = connection.read()
            assert answer.status == 200, answer

    def _processor_ns(self) -> int:
        """Processor time of all threads of all nodes, finer than the ticks of ``/proc/PID/stat``."""
        tasks = (task for node in self._cluster for task in Path(f"/proc/{node.pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


@contextmanager
def running(packages: Sequence[Path], size: int) -> Iterator[list[Side]]:
    """Start a cluster of each."""
    with ExitStack() as stack:
        clusters = []
        for folder in packages:
            environment = {"PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
            cluster = Cluster(size, arguments=("--durability", "disk"), environment=environment)
            stack.callback(cluster.stop)
            clusters.append(cluster)
        for cluster in clusters:
            for node in cluster:
                node.start(wait=False)
        yield [Side(cluster, stack) for cluster in clusters]


def order(turns: int) -> list[int]:
    """Return which side has each turn: A B B A A B B A ..., `turns` of each."""
    return [side for pair in range(turns) for side in ((0, 1) if pair % 2 == 0 else (1, 0))]


def ratios(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the least and the greatest ratio of neighbours."""
    found = [later / earlier for earlier, later in zip(before, after, strict=True)]
    return statistics.median(found), min(found), max(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare_commits", description=__doc__)
    parser.add_argument("before", help="a commit, or the folder of a working tree")
    parser.add_argument("after", nargs="?", default=str(ROOT), help="likewise (default: this working tree)")
    parser.add_argument("--rounds", type=int, default=2, help="each starts new nodes (default %(default)s)")
    parser.add_argument("--turns", type=int, default=8, help="of each commit in a round (default %(default)s)")
    parser.add_argument("--count", type=int, default=12_800, help="messages of a turn (default %(default)s)")
    parser.add_argument("--http-count", type=int, default=3_200, help="pushes over HTTP (default %(default)s)")
    given = parser.parse_args(arguments)
    print("| nodes | operation | before, us | after, us | ratio | least | greatest |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        names = ("before", "after")
        trees = [
            check_out(commit, Path(directory, name))
            for name, commit in zip(names, (given.before, given.after), strict=True)
        ]
        packages = [
            link_packages(tree, Path(directory, f"packages-{name}")) for name, tree in zip(names, trees, strict=True)
        ]
        for size in SIZES:
            found: tuple[defaultdict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
            for _ in range(given.rounds):
                with running(packages, size) as sides:
                    for side in sides:
                        side.turn(given.count, given.http_count)
                    for which in order(given.turns):
                        for operation, cost_us in sides[which].turn(given.count, given.http_count).items():
                            found[which][operation].append(cost_us)
            for operation in OPERATIONS:
                before, after = (each[operation] for each in found)
                median, least, greatest = ratios(before, after)
                print(
                    f"| {size} | {operation} | {statistics.median(before):.2f} | {statistics.median(after):.2f} "
                    f"| {median:.3f} | {least:.3f} | {greatest:.3f} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
