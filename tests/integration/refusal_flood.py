"""``python -m tests.integration.refusal_flood``: refusals and broken connections on all ports, and the memory
they leave.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .bad_input import MIB
from .canary import peak_rss_bytes, reset_peak_rss, rss_bytes
from .cluster import NodeProcess, ports, wait_for
from .raw_http import call
from .refusal_target import Kind, Target
from .refusals import BROKEN, CLUSTER_SECRET, FORBIDDEN, LATE, OTHERS, REFUSALS, prepare

__all__ = ["LEFT_BYTES_MAX", "Memory", "flood"]

LEFT_BYTES_MAX = 200 * MIB
"""Maximum growth of memory after a flood."""
SETTLE_S = 60.0
ADMIN = "the token of the operator of a flooded node"
_KESTREL = ("memcache", "text", "thrift")


@dataclass(frozen=True)
class Memory:
    """Resident memory of a node before a flood, its peak during it, and after it, when it has settled."""

    node: str
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    requests: int

    @property
    def left_bytes(self) -> int:
        """Return the memory that the flood has left."""
        return self.after_bytes - self.before_bytes

    def __str__(self) -> str:
        before, peak, after = (size // MIB for size in (self.before_bytes, self.peak_bytes, self.after_bytes))
        return f"{self.node}: {self.requests:,} requests, {before} MiB before, at most {peak} MiB, {after} MiB after"


@contextlib.contextmanager
def open_nodes(folder: Path) -> Iterator[list[tuple[NodeProcess, Target, Sequence[Kind]]]]:
    """Yield a node without tokens, one with tokens, and one without a leader, each with the requests that it
    refuses.
    """
    token_file = folder / "token"
    token_file.write_text(ADMIN)
    token_file.chmod(0o600)
    secret = {"LMQ_CLUSTER_SECRET": CLUSTER_SECRET}
    with contextlib.ExitStack() as stack:
        nodes = []
        for name, kinds in (("open", REFUSALS + BROKEN), ("guarded", FORBIDDEN), ("leaderless", LATE)):
            listening = {port: f"127.0.0.1:{ports.take()}" for port in _KESTREL}
            arguments = [word for port, address in listening.items() for word in (f"--{port}", address)]
            node = NodeProcess(folder, name, environment=secret)
            if name == "guarded":
                arguments += [f"--admin-token-file={token_file}", *(f"--{port}-as={OTHERS}" for port in _KESTREL)]
            if name == "leaderless":
                node.peers = (node.raft, f"127.0.0.1:{ports.take()}")
            node.arguments = tuple(arguments)
            stack.enter_context(contextlib.closing(_Ending(node)))
            node.start(wait=name != "leaderless")
            listening |= {"http": node.http, "rpc": node.rpc, "queued": node.queued, "sqs": node.sqs, "raft": node.raft}
            nodes.append((node, listening, kinds))
        yield [(node, _prepared(node, listening), kinds) for node, listening, kinds in nodes]


class _Ending:
    def __init__(self, node: NodeProcess) -> None:
        self._node = node

    def close(self) -> None:
        self._node.end()


def _prepared(node: NodeProcess, listening: dict[str, str]) -> Target:
    target = Target(listening, 0)
    if node.name == "open":
        prepare(node.http)
    elif node.name == "guarded":
        made = {"name": OTHERS, "role": "write", "queues": "^others$"}
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        answer = call(node.http, "POST", "/v1/tokens", json.dumps(made).encode(), headers)
        assert answer.status == 200, answer
        return Target(listening, 0, answer.json["token"])
    else:
        wait_for(lambda: _answers(node.http), "the node answers")
    return target


def _answers(address: str) -> bool:
    try:
        return call(address, "GET", "/livez").status == 200
    except OSError:
        return False


def flood(folder: Path, size: int, workers: int, goes_on: Callable[[int], bool]) -> list[Memory]:
    """Send all kinds of refused requests in rounds, and report the memory that they leave in each node.

    Args:
        folder: for the nodes.
        size: bytes of a request.
        workers: number of requests in flight at each node.
        goes_on: called with the number of finished rounds; returns whether there is another one.
    """
    with open_nodes(folder) as nodes, ThreadPoolExecutor(len(nodes)) as each:
        floods = [
            each.submit(_flooded, node, Target(target.addresses, size, target.secret), kinds, workers, goes_on)
            for node, target, kinds in nodes
        ]
        return [one.result() for one in floods]


def _flooded(
    node: NodeProcess, target: Target, kinds: Sequence[Kind], workers: int, goes_on: Callable[[int], bool]
) -> Memory:
    before = reset_peak_rss(node)
    requests = 0
    with ThreadPoolExecutor(workers) as pool:
        for rounds in itertools.count(1):
            order = random.sample(kinds, len(kinds))
            try:
                requests += len(list(pool.map(lambda kind: kind.check(target, under_load=True), order)))
            except OSError as exc:
                exc.add_note(f"{node.name} {'runs' if node.running else 'has ended'}\n{node.log_tail()}")
                raise
            if not goes_on(rounds):
                break
    peak = peak_rss_bytes(node)
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: rss_bytes(node) - before <= LEFT_BYTES_MAX, "memory settles", SETTLE_S)
    return Memory(node.name, before, peak, rss_bytes(node), requests)


def main() -> int:
    """Run the program; return 1 if a node keeps more memory than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.refusal_flood", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)s)")
    parser.add_argument("--size", type=int, default=4, metavar="MIB", help="of a request (%(default)s)")
    parser.add_argument("--workers", type=int, default=12, help="requests under way at each node (%(default)s)")
    options = parser.parse_args()
    ends_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        found = flood(Path(folder), options.size * MIB, options.workers, lambda _rounds: time.monotonic() < ends_s)
    print("\n".join(map(str, found)))
    return 1 if any(one.left_bytes > LEFT_BYTES_MAX for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
