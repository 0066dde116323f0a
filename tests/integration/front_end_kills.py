"""SIGKILL of front-end processes under load over five protocols: no confirmed message is lost, none is delivered again
after its confirmed ack.

``python -m tests.integration.front_end_kills --seconds 180`` runs it for the given time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from .cluster import Cluster, NodeProcess, ports, wait_for
from .queued_http import QueuedHttp
from .raw_http import Connection
from .raw_rpc import Rpc, RpcError

__all__ = ["FRONT_ENDS", "Load", "kill_front_ends", "with_front_ends"]

FRONT_ENDS: Final = 2
KILL_EVERY_S: Final = 5.0
ATTEMPTS: Final = 3
BROKEN: Final = (OSError, EOFError, AssertionError, RpcError)
"""Errors that a client of a killed front end may see. The outcome of its request is then unknown."""


class Load:
    """One client that pushes numbered messages to its queue, pulls them and acknowledges them.

    Attributes:
        violations: broken promises.
        errors: how many calls failed, by kind.
    """

    def __init__(self, node: NodeProcess, name: str, open_client: Callable[[str], Client]) -> None:
        self.name = name
        self._node = node
        self.violations: list[str] = []
        self.errors: Counter[str] = Counter()
        self._open = open_client
        self._confirmed: set[bytes] = set()
        self._delivered: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._client: Client | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self._confirmed)} pushes confirmed, {len(self._delivered)} delivered, "
            f"{len(self._settled)} settled; errors {dict(self.errors)}"
        )

    def finish(self) -> None:
        """Stop pushing, drain the queue, which includes leases whose pulls got no answer, and compare."""
        self._stop.set()
        self._thread.join()

        def is_empty() -> bool:
            while self._attempt("drain", self._take):
                pass
            return bool(self._node.get_json(f"/v1/queues/{self.name}")["size"] == 0)

        wait_for(is_empty, f"the end of {self.name}")
        self._close()
        lost = self._confirmed - self._delivered
        if lost:
            self.violations.append(
                f"{self.name}: {len(lost)} confirmed messages were lost, such as {sorted(lost)[:5]!r}"
            )

    def _run(self) -> None:
        number, choice = 0, random.Random(self.name)
        while not self._stop.is_set():
            # Several in a row, because front ends recognize pushes that repeat the last one.
            count = choice.randint(1, 6)
            for _ in range(count):
                number += 1
                body = b"%s-%d" % (self.name.encode(), number)
                if self._attempt("push", lambda client: client.push(body)) is not None:  # noqa: B023 - called at once
                    self._confirmed.add(body)
            for _ in range(count):
                self._attempt("take", self._take)

    def _attempt(self, what: str, call: Callable[[Client], bool]) -> bool | None:
        """Call with a client, a new one after an error; return None if the call failed."""
        try:
            self._client = self._client or self._open(self.name)
            return call(self._client)
        except BROKEN as exc:
            self.errors[f"{what} {type(exc).__name__}"] += 1
            self._close()
            return None

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _take(self, client: Client) -> bool:
        body = client.pull()
        if body is None:
            return False
        if body in self._settled:
            self.violations.append(f"{body!r} was delivered after its confirmed ack")
        self._delivered.add(body)
        if client.ack():
            self._settled.add(body)
        return True


class Client(ABC):
    """A client of one protocol, which holds one message at a time. A context manager that closes the connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def push(self, body: bytes) -> bool:
        """Store a message."""

    @abstractmethod
    def pull(self) -> bytes | None:
        """Take a message; None if there is none."""

    @abstractmethod
    def ack(self) -> bool:
        """Acknowledge it; False if the lease has ended."""


class RpcLoad(Client):
    """MessagePack-RPC."""

    def __init__(self, address: str, queue: str) -> None:
        self._rpc, self._queue, self._id = Rpc(address), queue, b""
        self._rpc.call("update_props", queue, {"timeout": 5.0, "retry": 1000})

    def close(self) -> None:
        self._rpc.close()

    def push(self, body: bytes) -> bool:
        return bool(self._rpc.call("push", self._queue, body) == b"ok")

    def pull(self) -> bytes | None:
        found = self._rpc.call("pull", self._queue, 0)
        if found == b"empty":
            return None
        self._id = found[b"id"]
        return bytes(found[b"content"])

    def ack(self) -> bool:
        return bool(self._rpc.call("done", self._queue, self._id) == b"ok")


class HttpLoad(Client):
    """LMQ's HTTP routes."""

    def __init__(self, address: str, queue: str) -> None:
        self._http, self._queue, self._id = Connection(address), queue, b""
        body, headers = b'{"timeout": 5, "retry": 1000}', {"Content-Type": "application/json"}
        assert self._http.call("PATCH", f"/properties/{queue}", body, headers).status == 204

    def close(self) -> None:
        self._http.close()

    def push(self, body: bytes) -> bool:
        assert self._http.call("POST", f"/messages/{self._queue}", body).status == 200
        return True

    def pull(self) -> bytes | None:
        answer = self._http.call("GET", f"/messages/{self._queue}?t=0")
        if answer.status == 204:
            return None
        assert answer.status == 200
        self._id = answer["x-lmq-message-id"]
        return answer.body

    def ack(self) -> bool:
        answer = self._http.call("POST", f"/messages/{self._queue}/{self._id.decode()}?reply=ack")
        return answer.status == 204


class MemcacheLoad(Client):
    """Kestrel's memcache protocol; the message returns to its queue if the connection is lost."""

    def __init__(self, address: str, queue: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self._file = self.socket.makefile("rwb")
        self._queue = queue.encode()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self.socket.close()

    def _ask(self, line: bytes) -> bytes:
        self._file.write(line)
        self._file.flush()
        answer = self._file.readline()
        if not answer:
            raise EOFError("the connection was closed")
        return answer

    def push(self, body: bytes) -> bool:
        assert self._ask(b"set %s 0 0 %d\r\n%s\r\n" % (self._queue, len(body), body)) == b"STORED\r\n"
        return True

    def pull(self) -> bytes | None:
        head = self._ask(b"get %s/open\r\n" % self._queue)
        if head == b"END\r\n":
            return None
        body = self._file.read(int(head.split()[3]) + 2)[:-2]
        assert self._file.readline() == b"END\r\n"
        return bytes(body)

    def ack(self) -> bool:
        return self._ask(b"get %s/close\r\n" % self._queue) == b"END\r\n"


class QueuedLoad(Client):
    """The HTTP interface for clients of queued."""

    def __init__(self, address: str, queue: str) -> None:
        self._api, self._queue = QueuedHttp(address), queue
        self._polled: dict[str, Any] = {}
        self._api("PUT", f"/queue/{queue}")

    def close(self) -> None:
        """Do nothing: each request opens a connection."""

    def push(self, body: bytes) -> bool:
        self._api.push(self._queue, body.decode())
        return True

    def pull(self) -> bytes | None:
        polled = self._api.poll(self._queue, count=1, hide=5)
        if not polled:
            return None
        self._polled = polled[0]
        return str(polled[0]["contents"]).encode()

    def ack(self) -> bool:
        self._api.delete(self._queue, self._polled)
        return True


class SqsLoad(Client):
    """Amazon SQS's JSON protocol. Like an SDK, it repeats a send whose answer it did not get, and names its attempts."""

    def __init__(self, address: str, queue: str) -> None:
        self._address, self._http = address, Connection(address)
        self._url, self._receipt = f"http://localhost/000000000000/{queue}", ""
        self._ask("CreateQueue", {"QueueName": queue, "Attributes": {"VisibilityTimeout": "5"}})

    def close(self) -> None:
        self._http.close()

    def _ask(self, action: str, parameters: Mapping[str, Any], invocation: str = "") -> Any:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        headers |= {"amz-sdk-invocation-id": invocation} if invocation else {}
        answer = self._http.call("POST", "/", json.dumps(parameters).encode(), headers)
        assert answer.status == 200, answer
        return json.loads(answer.body) if answer.body else None

    def push(self, body: bytes) -> bool:
        invocation, given = str(uuid.uuid4()), {"QueueUrl": self._url, "MessageBody": body.decode()}
        for _ in range(ATTEMPTS - 1):
            try:
                return bool(self._ask("SendMessage", given, invocation)["MessageId"])
            except BROKEN:
                self._http.close()
                self._http = Connection(self._address)
        return bool(self._ask("SendMessage", given, invocation)["MessageId"])

    def pull(self) -> bytes | None:
        found = self._ask("ReceiveMessage", {"QueueUrl": self._url}).get("Messages")
        if not found:
            return None
        self._receipt = found[0]["ReceiptHandle"]
        return str(found[0]["Body"]).encode()

    def ack(self) -> bool:
        self._ask("DeleteMessage", {"QueueUrl": self._url, "ReceiptHandle": self._receipt})
        return True


def with_front_ends(folder: Path) -> Cluster:
    """Return a cluster whose nodes have two front ends each, and a port for memcache."""
    cluster = Cluster(3, directory=folder, environment={"LMQ_FRONT_ENDS": str(FRONT_ENDS)})
    for node in cluster:
        node.environment["LMQ_MEMCACHE"] = f"127.0.0.1:{ports.take()}"
    return cluster


def kill_front_ends(cluster: Cluster, seconds: float, seed: int) -> tuple[list[Load], int]:
    """Run the load of all protocols for `seconds`, and kill a front end every few.

    Returns:
        The loads with what they saw, and the number of kills.
    """
    rng = random.Random(seed)
    node = cluster.followers()[0]
    loads = [
        Load(node, "rpc", lambda queue: RpcLoad(node.rpc, queue)),
        Load(node, "http", lambda queue: HttpLoad(node.http, queue)),
        Load(node, "memcache", lambda queue: MemcacheLoad(node.environment["LMQ_MEMCACHE"], queue)),
        Load(node, "queued", lambda queue: QueuedLoad(node.queued, queue)),
        Load(node, "sqs", lambda queue: SqsLoad(node.sqs, queue)),
    ]
    deadline_s, kills, victim = time.monotonic() + seconds, 0, 0

    def has_all() -> bool:
        return victim not in node.front_ends and len(node.front_ends) == FRONT_ENDS

    try:
        while (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(left_s, rng.uniform(0.4, 1.6) * min(KILL_EVERY_S, seconds / 4)))
            wait_for(has_all, "all front ends")
            victim = rng.choice(node.front_ends)
            os.kill(victim, signal.SIGKILL)
            kills += 1
        wait_for(has_all, "all front ends")
    finally:
        for load in loads:
            load.finish()
    return loads, kills


def main() -> int:
    """Run the program; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.front_end_kills", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="duration of the load (default 180)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses the victims (default: the clock)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, with_front_ends(Path(folder)) as cluster:
        loads, kills = kill_front_ends(cluster, options.seconds, options.seed)
    violations = [text for load in loads for text in load.violations]
    print(f"seed {options.seed}, {kills} front ends killed", *loads, *violations, sep="\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
