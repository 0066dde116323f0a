"""The SQS port, beside ElasticMQ: ``python -m tests.benchmarks.sqs [--rows N] [--elasticmq]``.

The load generator in Go sends signed requests, as an SDK does, to the leader of three nodes whose every answer waits for
two synced logs. ElasticMQ is one process that keeps messages in its memory; Maven downloads it. The rows have the
processor time of a request by process, which depends less on other work on the machine than the rates.

``--fair N`` checks fair queues instead: one tenant has N messages and 1,000 tenants have one each, and 50 consumers
receive over all nodes. It prints after how many deliveries the messages of the thousand were delivered.

``--memory N`` checks a long queue instead: it gets N messages of 100 bytes in ten parts, and the program prints the memory
of each node after each part. Then the retention period of the queue is a minute, and the program prints how long the
cluster takes to remove all messages once they are so old.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.native import programs
from tests.benchmarks.native.generator import Load, Run, run
from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster, NodeProcess, wait_for
from tests.integration.sqs_http import SqsHttp

ELASTICMQ: Final = "org.elasticmq:elasticmq-server_2.13:1.6.14"
LIBRARIES: Final = programs.BUILT / "elasticmq"
QUEUE: Final = "bench"
BATCH: Final = 10
TENANTS: Final = 1_000
CONSUMERS: Final = 50
PARTS: Final = 10
RETENTION_S: Final = 60


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement: an operation of the generator."""

    name: str
    operation: str
    connections: int
    messages: int
    """Messages of an operation."""


ROWS: Final = (
    Row("SendMessage, 64 connections", "push", 64, 1),
    Row("SendMessage, 1 connection", "push", 1, 1),
    Row("SendMessageBatch of 10, 64 connections", "push-batch", 64, BATCH),
    Row("ReceiveMessage and DeleteMessageBatch of 10, 64 connections", "consume", 64, BATCH),
)


@dataclass(frozen=True, slots=True)
class System:
    """A measured system: the address that clients use, its processes of which the first is there, and a key."""

    name: str
    address: str
    processes: Mapping[str, int]
    key: str


@contextlib.contextmanager
def lmqcluster(front_ends: int) -> Iterator[System]:
    """Run three nodes with a token, and yield them with the leader first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        admin, secret = folder / "admin", folder / "secret"
        for path in (admin, secret):
            path.write_text(secrets.token_urlsafe(32))
            path.chmod(0o600)
        arguments = ("--durability=disk", f"--admin-token-file={admin}", f"--front-ends={front_ends}")
        with Cluster(3, arguments=arguments, environment={"LMQ_CLUSTER_SECRET_FILE": str(secret)}) as cluster:
            token = admin.read_text()
            leader = wait_for(lambda: next((one for one in cluster if _leads(one, token)), None), "a leader")
            wanted = {"name": "bench", "role": "admin", "sqs": True}
            made = _call(leader, token, "POST", "/v1/tokens", wanted)
            nodes = [leader, *(one for one in cluster if one is not leader)]
            found = {one.name: one.pid for one in nodes if one.pid is not None}
            found |= {f"front end {number}": pid for number, pid in enumerate(leader.front_ends, 1)}
            yield System("lmqcluster", leader.sqs, found, f"bench:{made['secret_access_key']}")


def _leads(node: NodeProcess, token: str) -> bool:
    found = _call(node, token, "GET", "/v1/cluster")
    return bool(found["leader"] == found["self"] and found["has_quorum"])


def _call(node: NodeProcess, token: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{node.http}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def elasticmq() -> Iterator[System]:
    """Run ElasticMQ."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as name:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        settings = Path(name) / "elasticmq.conf"
        settings.write_text(
            f'include classpath("application.conf")\nrest-sqs.bind-port = {port}\nrest-stats.enabled = false\n'
        )
        command = ["java", f"-Dconfig.file={settings}", "-cp", f"{_libraries()}/*", "org.elasticmq.server.Main"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=name)
        try:
            wait_for(lambda: _accepts(port), "ElasticMQ answers")
            yield System("ElasticMQ", f"127.0.0.1:{port}", {"elasticmq": process.pid}, "any:key")
        finally:
            process.kill()
            process.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _libraries() -> Path:
    """Return the folder of ElasticMQ's libraries; Maven fills it."""
    if not LIBRARIES.exists():
        group, artifact, version = ELASTICMQ.split(":")
        with tempfile.TemporaryDirectory() as name:
            pom, copies = Path(name) / "pom.xml", Path(name) / "libraries"
            dependency = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            pom.write_text(
                "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>bench</artifactId>"
                f"<version>1</version><dependencies><dependency>{dependency}</dependency></dependencies></project>"
            )
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
            command = ["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={copies}"]
            subprocess.run(command, check=True, timeout=programs.BUILD_S)
            LIBRARIES.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(copies, LIBRARIES)
    return LIBRARIES


def create(program: Path, system: System, queue: str) -> None:
    """Create a queue by a signed request of the generator."""
    run(program, load(system, Row("", "create", 1, 1), queue, seconds=60.0, operations=1), {})


def load(system: System, row: Row, queue: str, *, seconds: float, warm_up: float = 0.0, operations: int = 0) -> Load:
    """Return the load of a row."""
    return Load(
        protocol="sqs",
        operation=row.operation,
        targets=[(system.address, queue)],
        connections=row.connections,
        in_flight=1,
        body=100,
        seconds=seconds,
        warm_up=warm_up,
        operations=operations,
        key=system.key,
    )


def measure(program: Path, system: System, row: Row, seconds: float) -> Run:
    """Measure a row in a new queue."""
    queue = f"{QUEUE}-{secrets.token_hex(4)}"
    create(program, system, queue)
    if row.operation == "consume":
        # Messages are consumed more slowly than they are sent.
        run(program, load(system, ROWS[2], queue, seconds=2.0 * seconds), {})
    return run(program, load(system, row, queue, seconds=seconds, warm_up=1.0), system.processes)


def report(system: System, row: Row, found: Run) -> str:
    """Return the line of a table."""
    cost = {name: spent * 1e6 / found.operations for name, spent in found.processor_s.items()}
    first, *others = system.processes
    shown = [
        f"{row.name}: {system.name}",
        f"{found.rate * row.messages:,.0f}",
        f"{found.p50_ms:.2f}",
        f"{cost[first]:.0f}",
        f"{sum(cost[name] for name in others):.0f}",
        f"{cost['generator']:.0f}",
        f"{found.elsewhere:.2f}",
    ]
    return f"| {' | '.join(shown)} |"


def speed(rows: Sequence[Row], seconds: float, front_ends: int, *, with_elasticmq: bool) -> None:
    """Measure rows on the systems in turns and print a table."""
    program = programs.build_generator()
    print("| Row | Messages/s | p50, ms | Leader, µs | Others, µs | Client, µs | Other work, processors |")
    print("|---|---|---|---|---|---|---|")
    with contextlib.ExitStack() as stack:
        systems = [stack.enter_context(lmqcluster(front_ends))]
        if with_elasticmq:
            systems.append(stack.enter_context(elasticmq()))
        for row in rows:
            for system in systems:
                print(report(system, row, measure(program, system, row, seconds)), flush=True)


class Deliveries:
    """Counts deliveries until those of all small tenants have been seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = self.small = self.needed = 0
        self.over = threading.Event()

    def note(self, *, small: bool) -> None:
        """Count a delivery."""
        with self._lock:
            self.count += 1
            if small:
                self.small, self.needed = self.small + 1, self.count
            if self.small == TENANTS:
                self.over.set()


def fill(program: Path, node: NodeProcess, messages: int, group: str = "") -> None:
    """Send messages, of one group if it is given."""
    target = System("", node.sqs, {}, "any:key")
    filling = load(target, ROWS[2], QUEUE, seconds=3600.0, operations=-(-messages // BATCH))
    run(program, Load(**{name: getattr(filling, name) for name in Load.__slots__} | {"group": group}), {})


def memory(messages: int) -> None:
    """Print the memory of the nodes while a queue becomes long, and how long its messages outlive their retention period."""
    program = programs.build_generator()
    with Cluster(3, arguments=("--durability=disk",)) as cluster:
        api = SqsHttp(cluster[0].sqs)
        url = api("CreateQueue", QueueName=QUEUE)["QueueUrl"]

        def count() -> int:
            found = api("GetQueueAttributes", QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
            return int(found["Attributes"]["ApproximateNumberOfMessages"])

        def used() -> list[int]:
            return [rss_bytes(node) for node in cluster]

        before, first, held = used(), used(), 0
        for part in range(1, PARTS + 1):
            fill(program, cluster[0], messages // PARTS)
            now, held = used(), count()
            print(f"{held:>10,} messages: {', '.join(f'{one / 1e6:,.0f} MB' for one in now)}", flush=True)
            if part == 1:
                first = now
        whole, later = max(map(sub, now, before)) / held, max(map(sub, now, first)) / (held - held // PARTS)
        print(f"bytes of memory for each message, on the largest node: {whole:.0f}; after the first part: {later:.0f}")
        api("SetQueueAttributes", QueueUrl=url, Attributes={"MessageRetentionPeriod": str(RETENTION_S)})
        filled = time.monotonic()
        wait_for(lambda: count() == 0, "the retention period empties the queue", 3600.0)
        print(
            f"empty {time.monotonic() - filled:.0f} s after the last message, with a retention period of {RETENTION_S} s"
        )


def fair(messages: int) -> None:
    """Check after how many deliveries each of the thousand small tenants has its message, and print it."""
    program = programs.build_generator()
    with Cluster(3, arguments=("--durability=disk",)) as cluster:
        nodes = list(cluster)
        url = SqsHttp(nodes[0].sqs)("CreateQueue", QueueName=QUEUE)["QueueUrl"]
        fill(program, nodes[0], messages, group="large")
        for first in range(0, TENANTS, BATCH):
            entries = [
                {"Id": str(number), "MessageBody": "small", "MessageGroupId": f"small-{number}"}
                for number in range(first, first + BATCH)
            ]
            SqsHttp(nodes[0].sqs)("SendMessageBatch", QueueUrl=url, Entries=entries)
        seen = Deliveries()

        def consume(number: int) -> None:
            api = SqsHttp(nodes[number % len(nodes)].sqs)
            while not seen.over.is_set():
                for one in api("ReceiveMessage", QueueUrl=url).get("Messages", ()):
                    seen.note(small=one["Body"] == "small")
                    api("DeleteMessage", QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])

        with ThreadPoolExecutor(CONSUMERS) as threads:
            list(threads.map(consume, range(CONSUMERS)))
        print(f"the messages of {TENANTS} tenants were delivered within the first {seen.needed} deliveries")


def main() -> int:
    """Run the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=len(ROWS), metavar="N", help="the first N rows (%(default)s)")
    options.add_argument("--seconds", type=float, default=5.0, help="measured time of a row (%(default)g)")
    options.add_argument("--front-ends", type=int, default=0, metavar="N", help="of each node (%(default)s)")
    options.add_argument("--elasticmq", action="store_true", help="measure ElasticMQ too")
    options.add_argument("--fair", type=int, metavar="N", help="check fair queues with N messages of one tenant")
    options.add_argument("--memory", type=int, metavar="N", help="check the memory of a queue of N messages")
    given = options.parse_args()
    if given.fair:
        fair(given.fair)
    elif given.memory:
        memory(given.memory)
    else:
        speed(ROWS[: given.rows], given.seconds, given.front_ends, with_elasticmq=given.elasticmq)
    return 0


if __name__ == "__main__":
    sys.exit(main())
