"""Notifications of a process to its service manager."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from lmqcluster.node.process.service_manager import ServiceManager

DEADLINE_S = 120.0


@pytest.fixture(params=["path", "abstract"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket and its name as NOTIFY_SOCKET has it, in both name spaces."""
    abstract = request.param == "abstract"
    name = f"@lmq-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name[1:] if abstract else name)
        listener.settimeout(DEADLINE_S)
        yield listener, name


def test_each_state_is_one_datagram(channel: tuple[socket.socket, str]) -> None:
    listener, name = channel
    manager = ServiceManager({"NOTIFY_SOCKET": name})
    manager.ready()
    manager.reloading()
    manager.stopping()
    assert listener.recv(4096) == b"READY=1"
    reloading, stamp = listener.recv(4096).split(b"\n")
    assert (reloading, stamp.split(b"=")[0]) == (b"RELOADING=1", b"MONOTONIC_USEC")
    assert listener.recv(4096).startswith(b"STOPPING=1\nSTATUS=stopping")


def test_a_watchdog_is_notified_repeatedly_and_the_state_only_when_it_changes(
    channel: tuple[socket.socket, str],
) -> None:
    listener, name = channel
    manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())})
    states = iter(["one", "one", "two", *["two"] * 100_000])

    async def scenario() -> list[bytes]:
        report = asyncio.ensure_future(manager.report(lambda: next(states)))
        heard = [await asyncio.to_thread(listener.recv, 4096) for _ in range(4)]
        report.cancel()
        return heard

    assert asyncio.run(scenario()) == [
        b"WATCHDOG=1\nSTATUS=one",
        b"WATCHDOG=1",
        b"WATCHDOG=1\nSTATUS=two",
        b"WATCHDOG=1",
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000000"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_watchdog_without_one_that_is_meant_for_this_process(environment: dict[str, str]) -> None:
    assert ServiceManager(environment).watchdog_s is None


def test_without_a_manager_nothing_is_sent_and_the_report_ends() -> None:
    manager = ServiceManager({})
    assert not manager.listens
    manager.ready()
    asyncio.run(manager.report(lambda: "never asked"))


def test_a_missing_manager_causes_one_warning(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "absent")})
    with structlog.testing.capture_logs() as lines:
        manager.ready()
        manager.stopping()
    assert [line["log_level"] for line in lines] == ["warning"]
