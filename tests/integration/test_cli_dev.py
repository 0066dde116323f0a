"""``lmq dev``: a cluster on this machine that is easy to start, watch and stop."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lmqcluster_cli.lmq import local_cluster

from .cluster import READY_S, fetch, ports, wait_for
from .programs import command_line, run, run_in_terminal, started
from .raw_rpc import Rpc

BASE = {
    "http": 9980,
    "rpc": 18800,
    "raft": 19980,
    "queued": 3333,
    "sqs": 9324,
    "memcache": 22133,
    "text": 2222,
    "thrift": 2229,
}


def free_offset(nodes: int = 3) -> int:
    """Return an offset at which all ports are free, and reserve them."""
    for offset in random.sample(range(1_000, 9_000, 100), 80):
        if all(ports.reserve(base + offset + 10 * k) for base in BASE.values() for k in range(nodes)):
            return offset
    raise RuntimeError("no free block of ports is left")


class Dev:
    """A running ``lmq dev`` whose output is collected."""

    def __init__(self, process: subprocess.Popen[bytes], offset: int, data_dir: Path) -> None:
        self.process = process
        self.offset = offset
        self.data_dir = data_dir
        self.arguments = ["--offset", str(offset), "--data-dir", str(data_dir)]
        self.http = [f"127.0.0.1:{9980 + offset + 10 * k}" for k in range(3)]
        self.lines: list[str] = []
        streams = (process.stdout, process.stderr)
        self._readers = [threading.Thread(target=self._collect, args=(stream,), daemon=True) for stream in streams]
        for reader in self._readers:
            reader.start()

    def _collect(self, stream) -> None:
        for line in stream:
            self.lines.append(line.decode())

    def wait_line(self, pattern: str) -> str:
        """Return the first matching line of output, once it has appeared."""

        def find() -> str | None:
            line = next((line for line in list(self.lines) if re.search(pattern, line)), None)
            assert line or self.process.poll() is None, f"ended with {self.process.returncode}: {''.join(self.lines)}"
            return line

        return wait_for(find, f"a line like {pattern!r} in {''.join(self.lines)}", READY_S)

    def rest(self, count: int) -> list[str]:
        """Return all lines after the first `count`, once the process has ended."""
        for reader in self._readers:
            reader.join(READY_S)
            assert not reader.is_alive()
        return self.lines[count:]

    def pid(self, name: str) -> int:
        """Return the process id of a node."""
        return int((self.data_dir / name / "lmq.pid").read_text())


@pytest.fixture
def dev(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Dev]:
    """A cluster that is ready. Parametrize indirectly with further arguments."""
    offset = free_offset()
    arguments = ["dev", "--offset", str(offset), "--data-dir", str(tmp_path), *getattr(request, "param", [])]
    with started("lmq", *arguments) as process:
        running = Dev(process, offset, tmp_path)
        running.wait_line("Ctrl-C stops all nodes")
        yield running
        process.send_signal(signal.SIGINT)
        process.wait(READY_S)


def test_it_prints_all_addresses_and_commands_that_work(dev: Dev) -> None:
    text = "".join(dev.lines)
    table = text.index("The cluster is ready: 3 nodes")
    assert text.index("| ") < table, "the logs of the start precede the table"
    assert "became leader" in text[:table]
    assert f"Console: http://{dev.http[0]}/console/" in text
    dev.wait_line(r"^n1 \| .*started")
    for k, address in enumerate(dev.http):
        port = int(address.rpartition(":")[2])
        row = dev.wait_line(rf"^  n{k + 1} ")
        others = [f"127.0.0.1:{port - 9980 + base}" for kind, base in BASE.items() if kind != "http"]
        assert row.split() == [f"n{k + 1}", address, *others]
        assert fetch(address, "/readyz")[0] == 200
        assert (dev.data_dir / f"n{k + 1}" / "lmq.pid").exists()
    assert f"curl -d hello http://{dev.http[0]}/messages/greetings" in text
    assert "n2 | " in text
    words = re.search(r"lmq-admin (.*status)$", text, re.MULTILINE)
    assert words is not None
    status = run("lmq-admin", *words[1].split())
    assert status.code == 0
    assert len(status.out.splitlines()) == 4


def test_a_slow_start_is_reported_and_still_ends_with_the_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_cluster, "READY_S", 0.0)

    async def main() -> str:
        settings = local_cluster.DevSettings(nodes=1, data_dir=tmp_path, offset=free_offset(1), respawn=False)
        running = asyncio.create_task(local_cluster.DevCluster(settings).run())
        shown = ""
        async with asyncio.timeout(READY_S):
            while "Ctrl-C stops all nodes" not in shown:
                await asyncio.sleep(0.1)
                shown += "".join(capsys.readouterr())
        os.kill(os.getpid(), signal.SIGINT)
        assert await running == 0
        return shown

    shown = asyncio.run(main())
    assert shown.count("n1 is not ready after 0 s; check its log above") == 1
    assert "The cluster is ready: 1 node" in shown


def test_the_table_fits_into_a_small_terminal(tmp_path: Path) -> None:
    offset = free_offset()
    arguments = ["dev", "--offset", str(offset), "--data-dir", str(tmp_path)]
    with started("lmq", *arguments, environment={"COLUMNS": "80"}) as process:
        running = Dev(process, offset, tmp_path)
        running.wait_line("Ctrl-C stops all nodes")
        process.send_signal(signal.SIGINT)
        assert process.wait(READY_S) == 0
    seen = "".join(running.lines)
    shown = seen[seen.index("The cluster is ready") : seen.index("Ctrl-C stops all nodes")].splitlines()
    assert len(shown) <= 20
    table = [line for line in shown if re.match(r"  \S+ +127", line)]
    assert len(table) == len(BASE), "a line for each protocol"
    assert max(map(len, table)) <= 80
    for k in range(3):
        assert any(f"127.0.0.1:{18800 + offset + 10 * k}" in line for line in table)


def test_its_nodes_share_a_secret_so_that_tokens_can_be_used(dev: Dev) -> None:
    made = run("lmq-admin", "--node", dev.http[0], "token", "create", "root", "--role", "admin")
    assert made.code == 0, made
    assert (dev.data_dir / "cluster-secret").stat().st_mode & 0o777 == 0o600
    log = "".join(dev.lines)
    assert (dev.data_dir / "cluster-secret").read_text().strip() not in log


def test_ctrl_c_stops_all_nodes_in_order(dev: Dev) -> None:
    count = len(dev.lines)
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(READY_S) == 0
    lines = dev.rest(count)
    assert "lmq dev: All nodes have stopped.\n" in lines
    levels = [found[1] for line in lines if (found := re.match(r"n\d \| \S+ \[(\w+) *\] ", line))]
    assert levels.count("info") >= 6, "each node says when it begins to stop, and that it has stopped"
    assert set(levels) == {"info"}
    assert not any((dev.data_dir / name / "lmq.pid").exists() for name in ("n1", "n2", "n3"))
    for address in dev.http:
        with pytest.raises(OSError, match="refused"):
            fetch(address, "/livez")


def test_a_second_ctrl_c_ends_them_at_once(dev: Dev) -> None:
    os.kill(dev.pid("n2"), signal.SIGSTOP)  # A paused node cannot stop in order.
    dev.process.send_signal(signal.SIGINT)
    dev.wait_line("Ctrl-C again")
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(10) == 0


def test_a_dead_node_is_reported_and_not_restarted(dev: Dev) -> None:
    os.kill(dev.pid("n3"), signal.SIGKILL)
    line = dev.wait_line("n3 was killed by SIGKILL")
    assert "2 of 3 nodes are running: the cluster continues" in line
    again = dev.wait_line("To restart it: .*lmq start ").partition("lmq start ")[2].split()
    assert run("lmq-admin", "--node", dev.http[0], "message", "push", "q", "x").code == 0
    os.kill(dev.pid("n2"), signal.SIGKILL)
    assert "1 of 3 nodes are running: no quorum" in dev.wait_line("n2 was killed by SIGKILL")

    with subprocess.Popen(command_line("lmq", "start", *again), stderr=subprocess.DEVNULL) as revived:
        wait_for(lambda: run("lmq", "ping", "--node", dev.http[2]).code == 0, "the node that was started again")
        revived.kill()


@pytest.mark.parametrize("dev", [["--respawn"]], indirect=True)
def test_respawn_restarts_a_dead_node(dev: Dev) -> None:
    old = dev.pid("n1")
    os.kill(old, signal.SIGKILL)
    dev.wait_line("n1 was killed by SIGKILL")
    wait_for(lambda: (dev.data_dir / "n1" / "lmq.pid").exists() and dev.pid("n1") != old, "a new process")
    wait_for(lambda: run("lmq", "ping", "--node", dev.http[0]).code == 0, "the new n1")


def test_no_node_outlives_it(dev: Dev) -> None:
    dev.process.kill()
    dev.process.wait()
    wait_for(lambda: not list(dev.data_dir.glob("*/lmq.pid")), "all nodes have ended")


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    offset = free_offset()
    port = 18800 + offset + 10
    with socket.create_server(("127.0.0.1", port)):
        result = run("lmq", "dev", "--offset", str(offset), "--data-dir", str(tmp_path / "var"))
    assert (result.code, result.out) == (69, "")
    error = result.one_line_error()
    assert f"cannot listen on 127.0.0.1:{port} (MessagePack-RPC of n2): Address already in use" in error
    assert "--offset" in error
    assert not (tmp_path / "var").exists()


def test_data_that_is_in_use_or_of_a_cluster_at_other_addresses_is_refused(dev: Dev) -> None:
    again = run("lmq", "dev", *dev.arguments)
    assert again.code == 78
    holder = f"a node (process {dev.pid('n1')}) is using the data directory {dev.data_dir / 'n1'}"
    advice = f"stop it, or start another cluster with --offset {dev.offset + 100} --data-dir {dev.data_dir}-2"
    assert again.one_line_error() == f"lmq: {holder}; {advice}"
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(READY_S) == 0
    elsewhere = ["--offset", str(free_offset())]
    for changed in (elsewhere, [*dev.arguments[:2], "--nodes", "1"]):
        result = run("lmq", "dev", *changed, "--data-dir", str(dev.data_dir))
        assert (result.code, result.out) == (78, "")
        error = result.one_line_error()
        assert "belongs to a cluster of 3 nodes" in error
        assert "--offset with which the cluster was created, or another --data-dir" in error
    with started("lmq", "dev", *dev.arguments, "--nodes", "2") as process:
        Dev(process, dev.offset, dev.data_dir).wait_line("The cluster is ready: 2 nodes")
        process.send_signal(signal.SIGINT)
        assert process.wait(READY_S) == 0


def test_a_port_in_use_leads_to_another_cluster_if_there_is_data(tmp_path: Path) -> None:
    offset = free_offset()
    (tmp_path / "var" / "n1").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 9980 + offset)):
        error = run("lmq", "dev", "--offset", str(offset), "--data-dir", str(tmp_path / "var")).one_line_error()
    assert f"start another cluster with --offset {offset + 100} --data-dir {tmp_path / 'var-2'}" in error


def test_it_ends_when_no_node_is_left(tmp_path: Path) -> None:
    (tmp_path / "n1").write_text("a file where a directory should be")
    result = run("lmq", "dev", "--nodes", "1", "--offset", str(free_offset(1)), "--data-dir", str(tmp_path))
    assert result.code == 69
    assert "n1 ended with exit status 78" in result.err
    assert "To restart it" not in result.out + result.err, "it would end again"
    assert "No node is running" in result.err


@pytest.mark.parametrize("columns", [70, 140])
def test_colours_are_for_terminals_only(tmp_path: Path, columns: int) -> None:
    (tmp_path / "n1").write_text("")
    arguments = ["lmq", "dev", "--nodes", "1", "--offset", str(free_offset(1)), "--data-dir", str(tmp_path)]
    _code, seen = run_in_terminal(*arguments, columns=columns)
    assert "\x1b[36mn1 | \x1b[0m" in seen
    _code, seen = run_in_terminal(*arguments, columns=columns, environment={"NO_COLOR": "1"})
    assert "\x1b" not in seen
    assert "n1 | " in seen


def test_unread_output_blocks_neither_the_nodes_nor_their_stop(tmp_path: Path) -> None:
    offset = free_offset(1)
    arguments = ["dev", "--nodes", "1", "--offset", str(offset), "--data-dir", str(tmp_path)]
    with started("lmq", *arguments, environment={"LMQ_REQUEST_LOG": "on"}) as process:

        def ready() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return fetch(f"127.0.0.1:{9980 + offset}", "/readyz")[0] == 200
            return False

        wait_for(ready, "the node to be ready")
        with Rpc(f"127.0.0.1:{18800 + offset}") as client:
            for _ in range(10):
                assert all(reply.error is None for reply in client.many([("push", "jobs", "x")] * 1_000))
        process.send_signal(signal.SIGINT)
        assert process.wait(READY_S) == 0
