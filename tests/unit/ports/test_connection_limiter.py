"""The bounds of a port: connections, unauthenticated, time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from lmqcluster.ports import (
    Bounds,
    ConnectionLimiter,
    ConnectionSlot,
    DescriptorShares,
    Ending,
    Memory,
    connection_limiter,
)
from lmqcluster.ports.client import Client, client_of
from lmqcluster.ports.rate_limited_log import RateLimitedLog

Ended = list[ConnectionSlot]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 30))


def make(
    connections: int, per_client: int, *, must_authenticate: bool = True, memory: Memory | None = None, **more: Any
) -> ConnectionLimiter:
    bounds = Bounds(connections, per_client, **more)
    return ConnectionLimiter("http", bounds, memory or Memory(0), lambda _address: must_authenticate)


def enter(port: ConnectionLimiter, host: str, ended: Ended, *, known: bool = False) -> ConnectionSlot:
    slot = port.enter((host, 1000))
    assert slot is not None
    slot.set_abort(lambda: ended.append(slot))
    if known:
        slot.admit()
    return slot


def test_a_client_uses_its_request_allowance_and_regains_it() -> None:
    client = Client("10.0.0.1", 10)
    assert [client.requests.take(100.0) for _ in range(10)] == [0.0] * 10
    assert client.requests.take(100.0) == 0.1
    assert client.requests.take(100.0625) > 0
    assert client.requests.take(100.125) == 0.0
    assert client.requests.take(100.125) > 0
    # A quiet period accumulates at most one second's worth.
    assert [client.requests.take(1000.0) for _ in range(10)] == [0.0] * 10
    assert client.requests.take(1000.0) > 0


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb:1:2:3", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_a_client_is_an_ipv4_address_or_64_bits_of_an_ipv6_address(host: str, client: str) -> None:
    assert client_of((host, 1, 0, 0)) == client


def test_bounds_per_client_apply_to_a_whole_ipv6_network() -> None:
    async def main() -> None:
        port, ended = make(100, 3), Ended()
        slots = [enter(port, f"2001:db8::{number}", ended, known=True) for number in range(1, 4)]
        assert {slot.client.name for slot in slots} == {"2001:db8::/64"}
        assert port.enter(("2001:db8::ffff", 1, 0, 0)) is None
        assert port.endings[Ending.CLIENT_FULL] == 1
        enter(port, "2001:db8:0:1::1", ended, known=True)
        assert not ended

    run(main)


def test_authenticated_connections_stay_and_a_new_one_is_refused() -> None:
    async def main() -> None:
        port, ended = make(100, 2), Ended()
        known, silent = enter(port, "10.0.0.1", ended, known=True), enter(port, "10.0.0.1", ended)
        third = enter(port, "10.0.0.1", ended, known=True)
        assert ended == [silent]
        assert port.enter(("10.0.0.1", 1)) is None
        known.release()
        known.release()
        enter(port, "10.0.0.1", ended)
        assert port.connections == third.client.connections == 2

    run(main)


def test_of_too_many_unauthenticated_connections_the_oldest_of_the_largest_client_is_closed() -> None:
    async def main() -> None:
        port, ended = make(8, 8), Ended()
        assert port.bounds.unauthenticated == 4
        lone = enter(port, "10.0.0.1", ended)
        crowd = [enter(port, "10.0.0.2", ended) for _ in range(3)]
        newcomer = enter(port, "10.0.0.3", ended)
        assert ended == crowd[:1]
        # A client that authenticates makes room: it no longer counts as unauthenticated.
        newcomer.admit()
        newcomer.admit()
        crowd += [enter(port, "10.0.0.2", ended) for _ in range(100)]
        assert len(port.unauthenticated) == 4
        assert lone in port.unauthenticated
        assert newcomer not in ended
        assert port.connections == 5

    run(main)


def test_a_full_port_accepts_a_new_connection_by_closing_another_one() -> None:
    async def main() -> None:
        port, ended = make(4, 4), Ended()
        for number in range(3):
            enter(port, f"10.0.0.{number}", ended, known=True)
        stranger = enter(port, "10.0.0.9", ended)
        late = enter(port, "10.0.0.8", ended, known=True)
        assert ended == [stranger]
        assert port.enter(("10.0.0.7", 1)) is None
        assert port.endings[Ending.PORT_FULL] == 2
        late.release()
        assert port.enter(("10.0.0.7", 1)) is not None

    run(main)


def test_a_connection_without_timely_authentication_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "SWEEP_S", 0.01)

    async def main() -> None:
        port, ended = make(10, 10, authentication_s=0.05), Ended()
        known, stranger = enter(port, "10.0.0.1", ended, known=True), enter(port, "10.0.0.1", ended)
        gone = asyncio.Event()
        stranger.set_abort(gone.set)
        await gone.wait()
        assert not known.is_released
        port.close()
        # Without required authentication no connection is late.
        port = make(10, 10, must_authenticate=False, authentication_s=0.0)
        stranger = enter(port, "10.0.0.1", ended)
        await asyncio.sleep(0.05)
        assert not stranger.is_released
        port.close()

    run(main)


def test_memory_of_all_unauthenticated_connections_is_bounded_and_the_largest_is_closed() -> None:
    async def main() -> None:
        memory = Memory(0)
        memory.unauthenticated_bytes_max = 1000
        first, second = make(10, 10, memory=memory), make(10, 10, memory=memory)
        ended = Ended()
        large, small = enter(first, "10.0.0.1", ended), enter(first, "10.0.0.2", ended)
        assert large.hold(800)
        assert small.hold(100)
        # The other port has no connection that could be closed.
        elsewhere = enter(second, "10.0.0.3", ended)
        assert not elsewhere.hold(200)
        assert small.hold(300)
        assert ended == [large]
        assert memory.unauthenticated_bytes == 300
        assert not small.hold(1001)
        assert small.held_bytes == 300
        # Authenticated connections are counted elsewhere.
        small.admit()
        assert (memory.unauthenticated_bytes, memory.clients_bytes) == (0, 300)
        small.release()
        assert small.hold(10_000)
        assert (memory.unauthenticated_bytes, memory.clients_bytes) == (0, 0)

    run(main)


def test_memory_is_bounded_for_one_client_and_for_all() -> None:
    async def main() -> None:
        memory = Memory(0)
        memory.client_bytes_max, memory.clients_bytes_max = 1000, 1500
        port, ended = make(10, 10, memory=memory), Ended()
        one, same, other = (enter(port, host, ended, known=True) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"))
        assert one.hold(600)
        assert not same.hold(401)
        assert same.hold(400)
        assert not other.hold(501)
        assert other.hold(500)
        same.release()
        assert other.hold(900)
        assert one.client.held_bytes == 600
        assert one.hold(0)
        assert memory.clients_bytes == 900
        assert not ended

    run(main)


def test_reconnecting_gives_no_client_more_than_its_share() -> None:
    async def main() -> None:
        port, ended = make(10, 10, requests_per_s=1), Ended()
        slot = enter(port, "10.0.0.1", ended)
        now_s = asyncio.get_running_loop().time()
        assert slot.client.requests.take(now_s) == 0.0
        slot.release()
        again = enter(port, "10.0.0.1", ended)
        assert again.client is slot.client
        assert again.client.requests.take(now_s) > 0

    run(main)


@pytest.mark.parametrize("limit", [128, 200, 256, 1024, 1500, 4096, 20_000, 32_768, 1 << 20])
def test_all_ports_together_leave_descriptors_in_reserve(limit: int) -> None:
    shares = DescriptorShares.of(limit)
    assert 2 * shares.client_port + shares.raft_port + shares.reserve <= limit
    assert shares.reserve >= min(128, limit // 2)
    assert shares.client_port >= min(10_000, limit // 8)
    assert shares.raft_port >= 8


def test_too_few_descriptors_are_refused() -> None:
    with pytest.raises(ValueError, match="may open 127 files, but a node needs at least 128; raise"):
        DescriptorShares.of(127)


def test_a_spare_connection_is_for_administration_alone() -> None:
    """The port, and then the client, has its maximum of authenticated connections."""

    async def main() -> None:
        for connections, per_client in ((4, 9), (9, 4)):
            port = make(connections, per_client, spare=2)
            for _ in range(4):
                assert enter(port, "10.0.0.1", Ended()).admit()
            ended = Ended()
            one, other = enter(port, "10.0.0.1", ended), enter(port, "10.0.0.1", Ended())
            assert not one.admit()
            assert one.is_spare
            assert other.admit(spare=True)
            assert other.is_spare
            assert enter(port, "10.0.0.1", Ended()) is not None
            assert ended == [one], "the oldest stranger goes"
            other.release()
            assert not enter(port, "10.0.0.1", Ended()).is_known

    run(main)


def test_a_client_gets_one_line_a_minute() -> None:
    log = RateLimitedLog("http")
    with structlog.testing.capture_logs() as lines:
        log.count("10.0.0.1", Ending.HANDSHAKE, "no TLS", 100.0)
        for _ in range(999):
            log.count("10.0.0.1", Ending.BAD_REQUEST, "not a request", 100.0)
        log.flush(159.0)
        assert [line["event"] for line in lines] == ["connections ended"]
        log.flush(160.5)
        assert [(line["count"], line["reason"], line["detail"]) for line in lines[1:]] == [
            (999, Ending.BAD_REQUEST.value, "not a request")
        ]
        assert log.totals[Ending.BAD_REQUEST] == 999
        # The number of lines is bounded for any number of clients.
        del lines[:]
        for number in range(5000):
            log.count(f"client {number}", Ending.HANDSHAKE, "", 200.0)
        assert len(lines) <= 1025
