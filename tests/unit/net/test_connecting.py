"""Connecting: a silent address, one that refuses, addresses that change, with and without an event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from lmqcluster.net import blocking, loop
from lmqcluster.net.race import STAGGER_S
from lmqcluster.net.resolver import Resolver

from .name_server import NameServer, listening, silent_port

PATIENT_S = 30.0
Connect = Callable[..., Any]


def _in_loop(factory: Callable[[], asyncio.AbstractEventLoop]) -> Connect:
    def connect_in_loop(*arguments: Any, **options: Any) -> socket.socket:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(loop.connect(*arguments, **options))

    return connect_in_loop


@pytest.fixture(params=["blocking", "asyncio", "uvloop"])
def connected(request: pytest.FixtureRequest) -> Connect:
    """Connects in one of three ways."""
    factories = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return blocking.connect if request.param == "blocking" else _in_loop(factories[request.param])


def test_a_first_address_that_is_silent_costs_the_stagger_alone(connected: Connect) -> None:
    with listening("127.0.0.3") as server, silent_port("127.0.0.2", server.getsockname()[1]) as port:
        resolver = Resolver(NameServer(node=["127.0.0.2", "127.0.0.3"]).resolve)
        begun = time.monotonic()
        with connected("node", port, timeout_s=PATIENT_S, resolver=resolver) as link:
            assert link.getpeername() == ("127.0.0.3", port)
        assert STAGGER_S <= time.monotonic() - begun < PATIENT_S / 2


def test_a_refusing_address_delays_no_other_and_its_reason_is_reported(connected: Connect) -> None:
    with listening("127.0.0.3") as server:
        port = server.getsockname()[1]
        resolver = Resolver(NameServer(node=["127.0.0.2", "127.0.0.3"], none=["127.0.0.2"]).resolve)
        with connected("node", port, timeout_s=PATIENT_S, resolver=resolver) as link:
            assert link.getpeername()[0] == "127.0.0.3"
        with pytest.raises(ConnectionRefusedError):
            connected("none", port, timeout_s=PATIENT_S, resolver=resolver)


def test_each_attempt_begins_with_another_address(connected: Connect) -> None:
    with listening("127.0.0.2") as server, listening("127.0.0.3", server.getsockname()[1]):
        port = server.getsockname()[1]
        resolver = Resolver(NameServer(node=["127.0.0.2", "127.0.0.3"]).resolve)
        reached = []
        for attempt in range(3):
            with connected("node", port, timeout_s=PATIENT_S, attempt=attempt, resolver=resolver) as link:
                reached.append(link.getpeername()[0])
        assert reached == ["127.0.0.2", "127.0.0.3", "127.0.0.2"]


def test_a_silent_address_is_abandoned_in_time_and_named(connected: Connect) -> None:
    with silent_port("127.0.0.2") as port:
        resolver = Resolver(NameServer(node=["127.0.0.2"]).resolve)
        with pytest.raises(TimeoutError, match=r"^node \(127.0.0.2\) did not answer within 0.05 s$"):
            connected("node", port, timeout_s=0.05, resolver=resolver)
        with pytest.raises(TimeoutError, match=r"^127.0.0.2 did not answer within 0.05 s$"):
            connected("127.0.0.2", port, timeout_s=0.05)


def test_a_lookup_has_a_separate_deadline(connected: Connect) -> None:
    server = NameServer(node=["127.0.0.1"])
    resolver = Resolver(server.resolve)
    release = server.hold("node")
    with pytest.raises(TimeoutError, match=r"^cannot look up node: the name server did not answer within 0.05 s$"):
        connected("node", 9, timeout_s=PATIENT_S, lookup_s=0.05, resolver=resolver)
    with pytest.raises(OSError, match="cannot look up other: Name or service not known"):
        connected("other", 9, timeout_s=PATIENT_S, resolver=resolver)
    release.set()


def test_addresses_that_change_while_the_name_server_is_slow(connected: Connect) -> None:
    """The last address is tried first, and the final answer of the name server is tried too."""
    with listening("127.0.0.3") as there, silent_port("127.0.0.2", there.getsockname()[1]) as port:
        server = NameServer(node=["127.0.0.2"])
        resolver = Resolver(server.resolve)
        blocking.find("node", resolver=resolver)
        release = server.hold("node")
        server.hosts["node"] = ["127.0.0.3"]
        threading.Timer(0.6, release.set).start()
        with connected("node", port, timeout_s=PATIENT_S, resolver=resolver) as link:
            assert link.getpeername()[0] == "127.0.0.3"


def test_the_last_address_is_used_while_a_lookup_hangs(connected: Connect) -> None:
    with listening() as there:
        server = NameServer(node=["127.0.0.1"])
        resolver = Resolver(server.resolve)
        blocking.find("node", resolver=resolver)
        release = server.hold("node")
        connected("node", there.getsockname()[1], timeout_s=PATIENT_S, resolver=resolver).close()
        release.set()


def test_an_invalid_port_is_a_system_error(connected: Connect) -> None:
    with pytest.raises(OSError, match="port"):
        connected("127.0.0.1", 70000, timeout_s=PATIENT_S)


def test_a_caller_that_is_cancelled_leaves_no_socket() -> None:
    async def give_up(port: int) -> None:
        task = asyncio.create_task(loop.connect("127.0.0.2", port, timeout_s=PATIENT_S))
        await asyncio.wait((task,), timeout=2 * STAGGER_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with silent_port("127.0.0.2") as port:
        asyncio.run(give_up(port))  # An unclosed socket would be a warning, which is an error here.


def test_a_refusing_address_is_retried_while_another_one_is_silent(connected: Connect) -> None:
    with silent_port("127.0.0.2") as port:
        resolver = Resolver(NameServer(node=["127.0.0.2", "127.0.0.3"]).resolve)
        begin = threading.Event()

        def start() -> None:
            begin.wait(PATIENT_S)
            with listening("127.0.0.3", port) as server:
                server.accept()[0].close()

        threading.Timer(2 * STAGGER_S, begin.set).start()
        starting = threading.Thread(target=start)
        starting.start()
        connected("node", port, timeout_s=PATIENT_S, resolver=resolver).close()
        starting.join()
