"""Ports of drills and tests: no two processes, and no two users in one process, get the same."""

from __future__ import annotations

import socket
import subprocess
import sys

from lmqcluster_chaos.nodes.ports import Ports

RESERVE = "import sys; from lmqcluster_chaos.nodes.ports import Ports; print(Ports().reserve(int(sys.argv[1])))"


def is_free_elsewhere(port: int) -> bool:
    done = subprocess.run([sys.executable, "-c", RESERVE, str(port)], capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


def test_a_port_belongs_to_one_until_it_is_released() -> None:
    one, other = Ports(), Ports()
    port = one.take()
    assert not one.reserve(port)
    assert not other.reserve(port)
    assert not is_free_elsewhere(port)
    # The end of another user in this process releases only its own ports.
    other.take()
    other.release()
    assert not is_free_elsewhere(port)
    one.release()
    assert is_free_elsewhere(port)
    assert other.reserve(port)
    other.release()


def test_a_port_with_a_listener_is_not_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not Ports().reserve(listener.getsockname()[1])


def test_released_ports_are_reused_last() -> None:
    ports = Ports()
    first = ports.take()
    ports.release()
    assert ports.take() != first
    ports.release()
