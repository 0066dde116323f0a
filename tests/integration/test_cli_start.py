"""``lmq start``, ``ping`` and ``config``: one real node, its signals, and failed starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from .cluster import NodeProcess, clean_environment, fetch, ports, reaper, wait_for
from .programs import Result, run


@pytest.fixture
def fresh(tmp_path: Path) -> NodeProcess:
    """A node for one test, not started; it will be a new interpreter."""
    node = NodeProcess(tmp_path)
    node.forked = False  # type: ignore[misc]  # for this node only
    return node


def test_the_pid_file_is_there_while_the_node_runs(fresh: NodeProcess) -> None:
    pid_file = fresh.data_dir / "lmq.pid"
    with fresh:
        assert pid_file.read_text().strip() == str(fresh.pid)
        assert fresh.stop() == 0
    assert not pid_file.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_node_in_order(fresh: NodeProcess, number: int) -> None:
    with fresh:
        fresh.signal(number)
        assert fresh.wait_exit() == 0
    assert "Traceback" not in fresh.log()


def test_sigterm_answers_a_blocked_pull_and_ends_within_ten_seconds(fresh: NodeProcess) -> None:
    with fresh:
        host, _, port = fresh.http.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(b"GET /messages/never HTTP/1.1\r\nhost: localhost\r\n\r\n")
            # The pull creates the queue, so the node has received the request.
            wait_for(lambda: fetch(fresh.http, "/v1/queues/never")[0] == 200, "the pull")
            assert fresh.stop(timeout_s=10) == 0
            assert connection.recv(4096).startswith((b"HTTP/1.1 204 ", b"HTTP/1.1 503 "))


def test_a_second_node_in_the_same_directory_is_refused(fresh: NodeProcess) -> None:
    with fresh:
        result = run(
            "lmq", "start", "--data-dir", str(fresh.data_dir), "--http", "127.0.0.1:0", "--rpc", "off", "--raft", "off"
        )
        assert result.code == 78
        assert f"process {fresh.pid}" in result.one_line_error()
        assert fetch(fresh.http, "/readyz")[0] == 200


def test_after_kill_9_the_directory_can_be_used_again(fresh: NodeProcess) -> None:
    with fresh:
        fresh.kill()
        fresh.start()
        assert (fresh.data_dir / "lmq.pid").read_text().strip() == str(fresh.pid)


@pytest.mark.parametrize("option", ["http", "rpc", "raft"])
def test_a_port_in_use_is_a_clear_error(fresh: NodeProcess, option: str) -> None:
    host, _, port = str(getattr(fresh, option)).rpartition(":")
    with socket.create_server((host, int(port))):
        result = run("lmq", *fresh.command()[3:])
    assert result.code == 69
    error = result.one_line_error()
    assert f"cannot listen on {host}:{port} ({option}): Address already in use" in error
    assert f"--{option}" in error


def test_an_address_that_appears_later_is_no_wrong_configuration(fresh: NodeProcess) -> None:
    """The status makes systemd start the node again. 192.0.2.1 is reserved for documentation."""
    result = run("lmq", "start", "--data-dir", str(fresh.data_dir), "--http", "192.0.2.1:9980", "--rpc", "off")
    assert result.code == 69
    assert "this machine does not have the address now: wait for it, or choose another" in result.one_line_error()
    assert not fresh.data_dir.exists()


def test_a_node_comes_back_when_its_port_is_free(fresh: NodeProcess) -> None:
    """The loop of a service manager: start again after every status but those that need an operator."""
    host, _, port = fresh.http.rpartition(":")
    with socket.create_server((host, int(port))):
        fresh.start(wait=False)
        assert fresh.wait_exit() == 69
    with fresh.start():
        assert fetch(fresh.http, "/readyz")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["start", "--http", "nonsense"], 78, "http: 'nonsense' is not HOST:PORT (flag --http)"),
        (["start", "--raft", "0.0.0.0:19980"], 78, "advertise_raft is needed"),
        (["start", "--raft", "10.0.0.1:19980"], 78, "raft 10.0.0.1:19980 is beyond loopback: set LMQ_CLUSTER_SECRET"),
        (["start", "--durability", "tape"], 78, "'tape' is not one of disk, process, memory"),
        (["start", "--config", "/absent.toml"], 78, "cannot read the configuration file /absent.toml"),
        (["start", "--no-such-option"], 2, "No such option"),
        (["start", "argument"], 2, "unexpected extra argument"),
        (["dev", "--nodes", "0"], 2, "--nodes"),
        (["dev", "--offset", "-1"], 2, "--offset"),
        (["no-such-command"], 2, "No such command 'no-such-command'"),
        (["ping", "--timeout", "soon"], 2, "--timeout"),
        (["ping", "--node", "127.0.0.1:1"], 69, "cannot reach 127.0.0.1:1: Connection refused"),
    ],
)
def test_wrong_arguments_are_one_line_and_an_exit_code(arguments: list[str], code: int, text: str) -> None:
    result = run("lmq", *arguments)
    assert (result.code, result.out) == (code, "")
    assert text in result.one_line_error()


def test_an_unusable_data_directory_is_a_configuration_error(fresh: NodeProcess) -> None:
    fresh.data_dir.write_text("a file where a directory should be")
    result = run("lmq", *fresh.command()[3:])
    assert result.code == 78
    assert f"cannot use the data directory {fresh.data_dir}" in result.one_line_error()


def config_check(node: NodeProcess, *more: str) -> Result:
    """Run `lmq config check` with the options that start a node."""
    return run("lmq", "config", "check", *node.command()[4:], *more)


def test_config_check_reports_what_would_prevent_a_start(fresh: NodeProcess) -> None:
    """Ports in use, a file in place of the data or event journal folder; it creates nothing, not even the folder."""
    assert config_check(fresh) == (0, "", "")
    assert not fresh.data_dir.exists()
    for option in ("http", "rpc", "raft"):
        host, _, port = str(getattr(fresh, option)).rpartition(":")
        with socket.create_server((host, int(port))):
            taken = config_check(fresh)
        assert taken.code == 69
        assert f"cannot listen on {host}:{port} ({option})" in taken.one_line_error()
        assert "pass --while-running" in taken.one_line_error()
    fresh.data_dir.write_text("a file where a directory should be")
    for options in ([], ["--while-running"], [f"--data-dir={fresh.data_dir}/deeper"]):
        unusable = config_check(fresh, *options)
        assert unusable.code == 78
        assert f"{fresh.data_dir} is not a directory" in unusable.one_line_error()
    fresh.data_dir.unlink()
    (fresh.data_dir.parent / "journal").write_text("")
    journal = config_check(fresh, f"--event-journal={fresh.data_dir.parent}/journal")
    assert journal.code == 78
    assert "event journal" in journal.one_line_error()


def test_config_check_while_the_node_runs(fresh: NodeProcess) -> None:
    """By default it reports that a node runs there; before a restart it checks only the rest."""
    with fresh.start():
        running = config_check(fresh)
        assert running.code == 78
        assert f"a node (process {fresh.pid}) is using" in running.one_line_error()
        assert "pass --while-running" in running.one_line_error()
        assert config_check(fresh, "--while-running") == (0, "", "")
        assert config_check(fresh, "--while-running", "--durability=tape").code == 78


def test_ping(node: NodeProcess) -> None:
    """LMQ 12.2: `lmq ping` prints pong, exit 0."""
    assert run("lmq", "ping", "--node", node.http) == (0, "pong\n", "")
    assert run("lmq", "ping", environment={"LMQ_NODE": node.http}) == (0, "pong\n", "")
    assert run("lmq", "ping", "--ready", "--node", node.http) == (0, "pong\n", "")


def test_ping_answers_without_a_quorum(tmp_path: Path) -> None:
    lonely = NodeProcess(tmp_path, peers=[f"127.0.0.1:{ports.take()}", f"127.0.0.1:{ports.take()}"])
    with lonely.start(wait=False):
        wait_for(lambda: run("lmq", "ping", "--node", lonely.http).code == 0, "pong")
        assert fetch(lonely.http, "/readyz")[0] == 503
        not_ready = run("lmq", "ping", "--ready", "--node", lonely.http)
        assert (not_ready.code, not_ready.out) == (69, "")
        assert f"{lonely.http} is not ready (leader: the founding members wait for " in not_ready.one_line_error()


def test_the_configuration_and_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "lmq.toml"
    file.write_text(
        'name = "file"\nhttp = "127.0.0.1:1"\nrpc = "127.0.0.1:2"\ncluster_secret = "do not show this one"\n'
    )
    result = run(
        "lmq", "config", "show", "--origin", "--json", "--config", str(file), "--name", "flag",
        environment={"LMQ_HTTP": "127.0.0.1:3", "LMQ_NAME": "environment"},
    )  # fmt: skip
    assert result.code == 0
    shown = json.loads(result.out)
    assert shown["name"] == {"value": "flag", "origin": "flag --name"}
    assert shown["http"] == {"value": "127.0.0.1:3", "origin": "environment LMQ_HTTP"}
    assert shown["rpc"] == {"value": "127.0.0.1:2", "origin": f"file {file}"}
    assert shown["raft"] == {"value": "127.0.0.1:19980", "origin": "default"}
    assert "do not show" not in result.out


def test_config_check() -> None:
    assert run("lmq", "config", "check", "--http", "off") == (0, "", "")
    assert run("lmq", "config", "check", "--http", "off", "--rpc", "off").code == 78


def test_a_node_takes_its_options_from_the_environment_and_a_file(tmp_path: Path) -> None:
    fresh = NodeProcess(tmp_path)
    file = tmp_path / "lmq.toml"
    file.write_text(f'name = "from-file"\nrpc = "off"\nraft = "{fresh.raft}"\ndata_dir = "{fresh.data_dir}"\n')
    fresh.environment |= {"LMQ_HTTP": fresh.http, "LMQ_CONFIG": str(file)}
    fresh.command = lambda: NodeProcess.command(fresh)[:4]  # type: ignore[method-assign]
    with fresh:
        [status] = fresh.get_json("/v1/cluster")["nodes"]
    assert (status["name"], status["rpc"], status["raft"]) == ("from-file", None, fresh.raft)


def test_a_node_stops_with_the_input_of_its_parent(fresh: NodeProcess) -> None:
    """Nodes of `lmq dev` rely on this to not outlive it."""
    read, write = os.pipe()
    with fresh.log_path.open("ab") as log:
        command = [*fresh.command(), "--stop-with-parent"]
        fresh.process = subprocess.Popen(
            command, stdin=read, stdout=log, stderr=log, env=clean_environment(), start_new_session=True
        )
    reaper.tell("+", fresh.process.pid)
    os.close(read)
    with fresh:
        fresh.wait_ready()
        os.close(write)
        assert fresh.wait_exit() == 0


def test_signals_without_a_meaning_do_not_end_the_node(fresh: NodeProcess) -> None:
    """By default SIGUSR1, SIGUSR2 and SIGHUP end a process."""
    with fresh:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            fresh.signal(number)
        wait_for(lambda: not fresh.running or "nothing to reload" in fresh.log(), "the signals are handled")
        assert fresh.running
        for name in ("SIGUSR1", "SIGUSR2"):
            assert f'"signal": "{name}"' in fresh.log()
        assert fetch(fresh.http, "/readyz")[0] == 200
        assert fresh.stop() == 0
