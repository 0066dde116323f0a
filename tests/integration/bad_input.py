"""Shared helpers of the bad-input tests: a cluster with a canary, memory checks, slow and silent clients,
random bytes.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .canary import Canary, peak_rss_bytes, reset_peak_rss
from .cluster import Cluster, NodeProcess

__all__ = ["MIB", "bounded_memory", "connect", "dribble", "end_of", "fuzz_blocks", "open_idle", "pour", "unharmed"]

MIB = 1024 * 1024
RECEIVE_BYTES = 1 << 16


def connect(address: str, timeout_s: float = 20.0, source: str | None = None) -> socket.socket:
    """Return a plain TCP connection, from the address `source` if given."""
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout_s, None if source is None else (source, 0))


@contextmanager
def unharmed(cluster: Cluster) -> Iterator[Canary]:
    """Run a canary on all nodes during the block; check afterwards that every process is still the same one."""
    pids = [node.pid for node in cluster]
    with Canary(cluster.nodes) as canary:
        yield canary
        canary.check()
    assert [node.pid for node in cluster] == pids


@contextmanager
def bounded_memory(nodes: Sequence[NodeProcess], growth_bytes_max: int) -> Iterator[None]:
    """Check that no node's memory grows by more than this at any time during the block."""
    before = [reset_peak_rss(node) for node in nodes]
    yield
    for node, start in zip(nodes, before, strict=True):
        growth = peak_rss_bytes(node) - start
        assert growth <= growth_bytes_max, f"{node.name} grew by {growth / MIB:.0f} MiB"


def pour(sock: socket.socket, block: bytes, total_bytes: int) -> int:
    """Send `block` repeatedly until `total_bytes` are sent or the other side closes; return the number of
    bytes sent.
    """
    sent = 0
    try:
        while sent < total_bytes:
            sock.sendall(block)
            sent += len(block)
    except (BrokenPipeError, ConnectionResetError):
        return sent
    return sent


def end_of(sock: socket.socket) -> bytes:
    """Return everything received until the other side closes.

    Raises:
        TimeoutError: it does not close.
    """
    received = bytearray()
    try:
        while data := sock.recv(RECEIVE_BYTES):
            received += data
    except ConnectionResetError:
        pass
    return bytes(received)


@contextmanager
def open_idle(
    address: str, count: int, first_bytes: Callable[[int], bytes] = lambda _i: b""
) -> Iterator[list[socket.socket]]:
    """Open many connections that send nothing, or `first_bytes` and then nothing."""
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            sockets.append(connect(address))
            if data := first_bytes(number):
                sockets[-1].sendall(data)
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


def dribble(sockets: Sequence[socket.socket], data: bytes, pause_s: float) -> None:
    """Send the same bytes on all connections, one byte at a time, with pauses."""
    for position in range(len(data)):
        for sock in sockets:
            sock.sendall(data[position : position + 1])
        time.sleep(pause_s)


def fuzz_blocks(seed: int, count: int, samples: Sequence[bytes]) -> Iterator[bytes]:
    """Yield reproducible garbage: random bytes, and `samples` with bytes changed, removed, repeated or inserted."""
    rng = random.Random(seed)
    for number in range(count):
        if number % 3 == 0 or not samples:
            yield rng.randbytes(rng.choice([1, 3, 16, 200, 5000]))
            continue
        data = bytearray(b"".join(rng.choices(samples, k=rng.randint(1, 4))))
        for _ in range(rng.randint(1, 6)):
            position = rng.randrange(len(data) + 1)
            kind = rng.randrange(4)
            if kind == 0 and position < len(data):
                data[position] = rng.randrange(256)
            elif kind == 1:
                del data[position : position + rng.randint(1, 8)]
            elif kind == 2:
                data[position:position] = data[position : position + 20]
            else:
                data[position:position] = rng.randbytes(rng.randint(1, 5))
        yield bytes(data)
