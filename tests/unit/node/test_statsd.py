"""StatsD: options, and the sizes of datagrams."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.load import load_config
from lmqcluster.node.metrics.statsd import RETENTIONS_MAX, StatsdSender
from lmqcluster.node.metrics.statsd_server import DATAGRAM_BYTES_MAX, StatsdServer
from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.wire.address import Address


def test_it_is_off_by_default_and_every_source_can_switch_it_on() -> None:
    assert load_config({}, environ={}).statsd is None
    config = load_config({}, environ={"LMQ_STATSD": "10.0.0.9:8125", "LMQ_STATSD_INTERVAL": "0"})
    assert (config.statsd, config.statsd_interval) == (Address("10.0.0.9", 8125), 0)
    assert load_config({"statsd": "off"}, environ={"LMQ_STATSD": "10.0.0.9:8125"}).statsd is None


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"statsd": "10.0.0.9:0"}, "statsd 10.0.0.9:0 has no port"),
        ({"statsd": "10.0.0.9"}, "statsd: '10.0.0.9' is not HOST:PORT"),
        ({"statsd_prefix": "a:b"}, "statsd_prefix must have at most 100 characters, and no colon"),
        ({"statsd_prefix": "x" * 101}, "statsd_prefix must have at most 100 characters"),
        ({"queued_statsd": "10.0.0.9:0"}, "queued_statsd 10.0.0.9:0 has no port"),
        ({"queued_statsd_prefix": "a b"}, "queued_statsd_prefix must have at most 100 characters, and no colon"),
        ({"queued_statsd_tags": "a:b|c"}, "queued_statsd_tags must have at most 100 characters, and no bar"),
        ({"statsd_interval": "soon"}, "statsd_interval: 'soon' is not a whole number"),
    ],
)
def test_invalid_values_are_refused(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(flags, environ={})
    assert str(caught.value).startswith(text)


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiving:
        receiving.bind(("127.0.0.1", 0))
        receiving.settimeout(60)
        yield receiving


def test_datagrams_fit_into_a_frame_and_retention_times_are_limited(receiver: socket.socket) -> None:
    machine = Machine(compile_pattern)
    names = [b"queue-%03d-" % number + b"x" * 200 for number in range(10)]
    pushes = [[Op.PUSH, name, None, [b"body"] * 30, None, 0] for name in names]
    pulls = [[Op.PULL, name, 30] for name in names]

    async def send() -> list[bytes]:
        server = StatsdServer(Address(*receiver.getsockname()))
        sender = StatsdSender(server, "lmq", 0, lambda: machine.state, FairSlices())
        for sequence, commands in enumerate((pushes, pulls), 1):
            applied = machine.apply(sequence, b"n1", 1, sequence, commands)  # type: ignore[arg-type]
            sender.batch_applied(sequence, commands, applied.results)  # type: ignore[arg-type]
        task = asyncio.create_task(sender.run())
        received: list[bytes] = []
        while sum(datagram.count(b"\n") + 1 for datagram in received) < 10 * (2 + RETENTIONS_MAX):
            received.append(await asyncio.to_thread(receiver.recv, 65536))
        task.cancel()
        server.close()
        return received

    received = asyncio.run(send())
    lines = b"\n".join(received).split(b"\n")
    assert max(map(len, received)) <= DATAGRAM_BYTES_MAX
    assert sorted(line for line in lines if line.endswith(b"|c") and names[7] in line) == [
        b"lmq.%b.pull:30|c" % names[7],
        b"lmq.%b.push:30|c" % names[7],
    ]
    assert sum(b".retention:" in line and names[7] in line for line in lines) == RETENTIONS_MAX


def test_a_push_that_waited_counts_when_it_is_stored(receiver: socket.socket) -> None:
    machine = Machine(compile_pattern)
    machine.apply(1, b"n1", 1, 1, [[Op.SET_PROPERTIES, b"q", [["max_items", 1]]]])
    waiting = [Op.PUSH_ROWS, b"q", [[b"body", None, b"", None, []]], b"", None, 0, False, 1_000_000]
    batches: list[list[Any]] = [[waiting, waiting, waiting], [[Op.PULL, b"q", 1]]]

    async def send() -> bytes:
        server = StatsdServer(Address(*receiver.getsockname()))
        sender = StatsdSender(server, "lmq", 0, lambda: machine.state, FairSlices())
        for sequence, commands in enumerate(batches, 2):
            applied = machine.apply(sequence, b"n1", 1, sequence, commands)
            sender.batch_applied(sequence, commands, applied.results, applied.notices)
        task = asyncio.create_task(sender.run())
        received = await asyncio.to_thread(receiver.recv, 65536)
        task.cancel()
        server.close()
        return received

    assert asyncio.run(send()).split(b"\n")[:2] == [b"lmq.q.push:2|c", b"lmq.q.pull:1|c"]
