"""Lookups: one per name at a time, none that delays another one, and the last addresses while there is no answer."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from lmqcluster.net import blocking, loop
from lmqcluster.net.resolver import KNOWN_MAX, LOOKUPS_MAX, Resolver

from .name_server import NameServer

PATIENT_S = 30.0


def hosts(found: object) -> list[str]:
    assert isinstance(found, tuple)
    return [one.host for one in found]


def test_numeric_addresses_need_no_lookup() -> None:
    server = NameServer()
    resolver = Resolver(server.resolve)
    assert hosts(blocking.find("127.0.0.1", resolver=resolver)) == ["127.0.0.1"]
    assert hosts(asyncio.run(loop.find("::1", resolver=resolver))) == ["::1"]
    assert not server.asked


def test_a_hanging_name_delays_no_other_and_has_one_lookup() -> None:
    server = NameServer(good=["127.0.0.1"], dead=["127.0.0.2"])
    resolver = Resolver(server.resolve)
    release = server.hold("dead")

    async def ask() -> None:
        waiting = [asyncio.create_task(loop.find("dead", PATIENT_S, resolver=resolver)) for _ in range(100)]
        for _ in range(20):
            with pytest.raises(TimeoutError, match="cannot look up dead: the name server did not answer within 0 s"):
                await loop.find("dead", 0, resolver=resolver)
        assert hosts(await loop.find("good", PATIENT_S, resolver=resolver)) == ["127.0.0.1"]
        assert hosts(await asyncio.to_thread(blocking.find, "good", PATIENT_S, resolver=resolver)) == ["127.0.0.1"]
        release.set()
        assert {str(hosts(one)) for one in await asyncio.gather(*waiting)} == {"['127.0.0.2']"}

    asyncio.run(ask())
    assert (server.asked["dead"], server.at_once) == (1, 1)


def test_an_abandoned_lookup_serves_the_next_caller() -> None:
    server = NameServer(slow=["127.0.0.1"])
    resolver = Resolver(server.resolve)
    release = server.hold("slow")
    with pytest.raises(TimeoutError):
        blocking.find("slow", 0.01, resolver=resolver)
    threading.Timer(0.05, release.set).start()
    assert hosts(blocking.find("slow", PATIENT_S, resolver=resolver)) == ["127.0.0.1"]
    assert server.asked["slow"] == 1


def test_the_last_addresses_replace_a_failing_name_server_but_not_a_removed_name() -> None:
    server = NameServer(node=["127.0.0.1"])
    resolver = Resolver(server.resolve)
    assert hosts(blocking.find("node", resolver=resolver)) == ["127.0.0.1"]
    server.hosts["node"] = []
    assert hosts(blocking.find("node", resolver=resolver)) == ["127.0.0.1"]
    release = server.hold("node")
    server.hosts["node"] = ["127.0.0.9"]
    begun = time.monotonic()
    assert hosts(blocking.find("node", PATIENT_S, resolver=resolver)) == ["127.0.0.1"]
    assert time.monotonic() - begun < PATIENT_S / 2
    release.set()
    resolver.look_up("node").answer.result(PATIENT_S)
    assert hosts(blocking.find("node", resolver=resolver)) == ["127.0.0.9"]
    del server.hosts["node"]
    with pytest.raises(socket.gaierror, match="cannot look up node: Name or service not known"):
        blocking.find("node", resolver=resolver)
    assert resolver.look_up("node").known == ()


def test_lookups_without_answers_are_bounded_and_end() -> None:
    server = NameServer(one_more=["127.0.0.1"])
    resolver = Resolver(server.resolve)
    held = [server.hold(f"h{number}") for number in range(LOOKUPS_MAX)]
    under_way = [resolver.look_up(f"h{number}") for number in range(LOOKUPS_MAX)]
    with pytest.raises(OSError, match=f"cannot look up one_more: {LOOKUPS_MAX} other look-ups"):
        blocking.find("one_more", resolver=resolver)
    for one in held:
        one.set()
    for lookup in under_way:
        assert isinstance(lookup.answer.result(PATIENT_S), socket.gaierror)
    assert hosts(blocking.find("one_more", resolver=resolver)) == ["127.0.0.1"]


def test_the_cache_of_names_is_bounded() -> None:
    resolver = Resolver(lambda _host: socket.getaddrinfo("127.0.0.1", None, type=socket.SOCK_STREAM))
    for number in range(KNOWN_MAX + 5):
        blocking.find(f"h{number}", resolver=resolver)
    assert [bool(resolver.look_up(f"h{number}").known) for number in (KNOWN_MAX + 4, 5, 4, 0)] == [
        True,
        True,
        False,
        False,
    ]


def test_families_alternate_and_an_invalid_name_is_a_system_error() -> None:
    found = [*socket.getaddrinfo("::1", None), *socket.getaddrinfo("::2", None), *socket.getaddrinfo("127.0.0.1", None)]
    assert hosts(blocking.find("both", resolver=Resolver(lambda _host: found))) == ["::1", "127.0.0.1", "::2"]
    for text in ("a" * 70, "x\0y", ""):
        with pytest.raises(OSError, match="cannot look up"):
            blocking.find(text, PATIENT_S)


def test_a_cancelled_caller_leaves_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    server = NameServer()
    resolver = Resolver(server.resolve)
    release = server.hold("gone")

    async def ask() -> None:
        tasks = [asyncio.create_task(loop.find("gone", PATIENT_S, resolver=resolver)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await loop.find("gone", 0, resolver=resolver)
        for task in tasks[:2]:
            task.cancel()
        release.set()
        with pytest.raises(socket.gaierror):
            await tasks[2]

    with caplog.at_level(logging.DEBUG):
        asyncio.run(ask(), debug=True)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


FORKED = """
import os, socket, sys, threading
from lmqcluster.net import blocking
from lmqcluster.net.resolver import RESOLVER
never = threading.Event()
RESOLVER._resolve = lambda host: never.wait()
RESOLVER.look_up("hangs")
RESOLVER._lock.acquire()
child = os.fork()
if child == 0:
    RESOLVER._resolve = lambda host: socket.getaddrinfo("127.0.0.1", None, type=socket.SOCK_STREAM)
    os._exit(0 if blocking.find("hangs", 20)[0].host == "127.0.0.1" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_hanging_lookup_blocks_neither_a_forked_process_nor_an_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], check=False, capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)
