"""Bad input against a cluster of three nodes beside an honest client, and the invariants during and after it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import random
import socket
import struct
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster, NodeProcess, wait_for
from tests.integration.kestrel_ports import PROTOCOLS, address_of, with_kestrel_ports

from .honest import Honest
from .honest_kestrel import HonestKestrel
from .http_inputs import http_input
from .inputs import Input, rng_of
from .kestrel_inputs import memcache_input, text_input, thrift_input
from .raft_inputs import raft_input
from .rpc_inputs import rpc_input
from .sqs_inputs import sqs_input

__all__ = ["Report", "Settings", "run"]

MIB = 1 << 20
GROWTH_BYTES_MAX = 400 * MIB
"""Maximum growth of a node's resident memory: buffers of clients, and data that bad input may legitimately store."""
READ_S = 0.2
ROOT = "the token of the administrator of this campaign"
SENDER = "sender"
SECRET = "the secret of the cluster of this campaign"
DIGESTS_S = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One campaign.

    Attributes:
        seed: determines all input.
        seconds: the duration.
        tokens: True if clients need a token; some of the bad input then comes from a client with one.
        senders: number of concurrent senders.
        inputs_max: end after this many inputs; None for no bound.
        first: number of the first input.
    """

    seed: int
    seconds: float
    tokens: bool = False
    senders: int = 6
    inputs_max: int | None = None
    first: int = 0


@dataclass
class Report:
    """The results.

    Attributes:
        inputs: number of inputs, by port.
        problems: the violations; empty if there are none.
    """

    seed: int
    inputs: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    elections: int = 0
    growth_mib: dict[str, int] = field(default_factory=dict)
    pushed: int = 0
    closed: int = 0
    slowest_s: float = 0.0

    def text(self) -> str:
        """Return the report for people."""
        growth = ", ".join(f"{name} {size} MiB" for name, size in self.growth_mib.items())
        lines = [
            f"seed {self.seed}: {self.inputs.total()} inputs ({', '.join(f'{n} {p}' for p, n in sorted(self.inputs.items()))})",
            (
                f"honest clients: {self.pushed} pushes acknowledged, {self.closed} of Kestrel's items closed,"
                f" slowest request {self.slowest_s:.2f} s"
            ),
            f"memory above the start at most: {growth}; elections: {self.elections}",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)


_WITHOUT_TOKEN: Mapping[str, Callable[[random.Random], Input]] = {
    "raft": raft_input,
    "memcache": memcache_input,
    "text": text_input,
    "thrift": thrift_input,
    "sqs": sqs_input,
}


def make_input(seed: int, number: int, token: str | None) -> Input:
    """Return the input of this number; the same for the same seed."""
    rng = rng_of(seed, number)
    port = rng.choices(("http", "rpc", "raft", "memcache", "text", "thrift", "sqs"), (5, 5, 2, 3, 2, 2, 4))[0]
    if port in _WITHOUT_TOKEN:
        return _WITHOUT_TOKEN[port](rng)
    return http_input(rng, token) if port == "http" else rpc_input(rng, token)


def send(node: NodeProcess, one: Input) -> None:
    """Send one input; the node may react in any way."""
    if one.port in PROTOCOLS:
        address = address_of(node, one.port)
    else:
        host, port = {"http": node.http, "rpc": node.rpc, "raft": node.raft, "sqs": node.sqs}[one.port].rsplit(":", 1)
        address = (host, int(port))
    with contextlib.suppress(OSError), socket.create_connection(address, 20) as sock:
        sock.settimeout(READ_S)
        for piece in one.pieces:
            sock.sendall(piece)
            time.sleep(one.pause_s)
        if one.ending == "abort":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if one.ending == "half":
            sock.shutdown(socket.SHUT_WR)
        if one.ending != "close":
            for _ in range(20):
                if not sock.recv(1 << 16):
                    return


class _Campaign:
    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.report = Report(settings.seed)
        self._nodes = list(cluster)
        self._root = ROOT if settings.tokens else None
        self._token = self._make_token() if settings.tokens else None
        self._numbers = itertools.count(settings.first)
        self._end_s = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def ask(self, node: NodeProcess, path: str, body: Any = None) -> Any:
        """Return JSON of a node, as the administrator."""
        headers = {"Content-Type": "application/json"}
        if self._root is not None:
            headers["Authorization"] = f"Bearer {self._root}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{node.http}{path}", data, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            content = answer.read()
            return json.loads(content) if answer.headers["Content-Type"].startswith("application/json") else content

    def _make_token(self) -> str:
        queues = "^(fuzz|honest-client-of-kestrel$)"
        made = self.ask(self._nodes[0], "/v1/tokens", {"name": SENDER, "role": "write", "queues": queues})
        return str(made["token"])

    def run(self) -> Report:
        """Send, watch, and judge."""
        honest = Honest(self._nodes, self._root)
        honest.prepare()
        kestrel = HonestKestrel(self._nodes)
        term = self._term()
        before = {node.name: rss_bytes(node) for node in self._nodes}
        self.report.growth_mib = dict.fromkeys(before, 0)
        self._end_s = time.monotonic() + self.settings.seconds
        senders = [threading.Thread(target=self._send, name=f"sender {n}") for n in range(self.settings.senders)]
        honest.start()
        kestrel.start()
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            self._watch(before)
            if (
                honest.problem is not None
                or kestrel.problem is not None
                or not all(node.running for node in self._nodes)
            ):
                self._stop.set()
            self._stop.wait(0.5)
        for sender in senders:
            sender.join()
        honest.stop()
        kestrel.stop()
        self.report.pushed, self.report.slowest_s = len(honest.pushed), max(honest.slowest_s, kestrel.slowest_s)
        self.report.closed = kestrel.closed
        if kestrel.problem is not None:
            self.report.problems.append(f"the honest client of Kestrel was not served: {kestrel.problem!r}")
        self._judge(honest, term)
        return self.report

    def _send(self) -> None:
        settings = self.settings
        for number in self._numbers:
            if self._stop.is_set() or time.monotonic() > self._end_s:
                return
            if settings.inputs_max is not None and number >= settings.first + settings.inputs_max:
                return
            one = make_input(settings.seed, number, self._token)
            with self._lock:
                self.report.inputs[one.port] += 1
            send(self._nodes[number % len(self._nodes)], one)

    def _watch(self, before: dict[str, int]) -> None:
        growth = self.report.growth_mib
        for node in self._nodes:
            with contextlib.suppress(OSError):
                growth[node.name] = max(growth[node.name], (rss_bytes(node) - before[node.name]) // MIB)

    def _term(self) -> int:
        return max(int(self.ask(node, "/v1/cluster")["term"]) for node in self._nodes)

    def _judge(self, honest: Honest, term: int) -> None:
        problems = self.report.problems
        dead = [node for node in self._nodes if not node.running]
        problems += [f"{node.name} has died\n{node.log_tail()}" for node in dead]
        if honest.problem is not None:
            problems.append(f"the honest client was not served: {honest.problem!r}")
        for name, size in self.report.growth_mib.items():
            if size * MIB > GROWTH_BYTES_MAX:
                problems.append(f"{name} grew by {size} MiB, more than {GROWTH_BYTES_MAX // MIB} MiB")
        for node in self._nodes:
            lines = [line for line in node.log().splitlines() if "Traceback" in line or '"level": "error"' in line]
            problems += [f"{node.name} logged {line[:2000]}" for line in lines[:3]]
        if dead or honest.problem is not None:
            return
        lost = honest.settle()
        if lost:
            problems.append(f"{len(lost)} acknowledged pushes were never delivered, such as {sorted(lost)[:3]}")
        if not honest.pushed:
            problems.append("the honest client made no progress")
        self.report.elections = self._term() - term
        digests = self._equal_digests()
        if digests is None:
            problems.append("no snapshots of one entry could be taken on all nodes")
        elif len(set(digests)) != 1:
            problems.append(f"the replicas differ: {digests}")

    def _equal_digests(self) -> list[str] | None:
        """Return the digests of the states of all nodes after the same entry; different ones if the replicas differ."""
        found: dict[int, dict[str, str]] = {}

        def collect() -> list[str] | None:
            # All at once: nodes with clients of Kestrel write to the log every second.
            for name, reported in zip(
                (node.name for node in self._nodes), pool.map(self._digest, self._nodes), strict=True
            ):
                if reported is not None:
                    index, digest = reported
                    found.setdefault(index, {})[name] = digest
            whole = [list(one.values()) for one in found.values() if len(one) == len(self._nodes)]
            return whole[0] if whole else None

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            try:
                return wait_for(collect, "snapshots of one entry", DIGESTS_S)
            except TimeoutError:
                return None

    def _digest(self, node: NodeProcess) -> tuple[int, str] | None:
        """Return a node's entry and the digest of its state after that; None if it gives none."""
        try:
            info = self.ask(node, "/v1/snapshots", {})
            total = hashlib.sha256()
            for number in range(info["blocks"]):
                total.update(self.ask(node, f"/v1/snapshots/{info['index']}/blocks/{number}"))
        except (OSError, http.client.HTTPException):
            return None
        return info["index"], total.hexdigest()


def run(settings: Settings) -> Report:
    """Run a campaign on a new cluster."""
    with tempfile.TemporaryDirectory(prefix="lmqcluster-fuzz-") as folder:
        environment: dict[str, str] = {}
        if settings.tokens:
            path = Path(folder) / "admin-token"
            path.write_text(ROOT)
            path.chmod(0o600)
            environment = {"LMQ_CLUSTER_SECRET": SECRET, "LMQ_ADMIN_TOKEN_FILE": str(path)}
            environment |= {f"LMQ_{protocol.upper()}_AS": SENDER for protocol in PROTOCOLS}
        with with_kestrel_ports(Cluster(3, directory=Path(folder), environment=environment)) as cluster:
            return _Campaign(settings, cluster).run()
