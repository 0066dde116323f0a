"""The systemd unit: the checks of systemd's own tools, and a node that runs under it in its sandbox."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lmqcluster_cli.shared.certificates import Authority

from lmqcluster.node.config.load import load_config
from tests.integration.cluster import fetch, ports, wait_for

from .machine import Machine, why_not
from .tools import DEPLOY, builds_everything, run

SYSTEMD = DEPLOY / "systemd"
UNIT = SYSTEMD / "lmqcluster.service"
EXPOSURE_MAX = 1.5
"""On the scale of systemd-analyze up to 10; a service with network access cannot be below about 1."""
SECRET = "a secret for tests only, of no value"
TOKEN = "lmq_a-token-for-tests-only-of-no-value"
CONFIGURATION = "/etc/lmqcluster/lmqcluster.toml"
AUTHORITY = "/etc/lmqcluster/tls/ca.crt"


@pytest.fixture
def checked(tmp_path: Path) -> Path:
    """The unit with a program that exists on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze: install the Debian package systemd")
    path = tmp_path / UNIT.name
    program = str(Path(sys.executable).with_name("lmq"))
    path.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/lmqcluster/bin/lmq", program), encoding="utf-8")
    return path


def test_systemd_finds_no_error(checked: Path) -> None:
    done = run("systemd-analyze", "verify", "--man=no", checked)
    # It also reads the units of this machine, and may report errors in those.
    assert [line for line in (done.stdout + done.stderr).splitlines() if "lmqcluster" in line] == []


def test_systemd_finds_the_unit_little_exposed(checked: Path) -> None:
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", checked)
    exposure = re.search(r"Overall exposure level for lmqcluster.service: ([0-9.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX


def installed(folder: Path) -> dict[str, Path]:
    """Create the files that the example configuration names in a folder, and return them by name."""
    secret, token = folder / "cluster-secret", folder / "admin-token"
    secret.write_text(SECRET)
    token.write_text(TOKEN)
    certificate, key = Authority.create(folder).issue("node", ["127.0.0.1"], 1, replace=False)
    return {
        "/etc/lmqcluster/cluster-secret": secret,
        "/etc/lmqcluster/admin-token": token,
        "/etc/lmqcluster/tls/node.crt": certificate,
        "/etc/lmqcluster/tls/node.key": key,
        AUTHORITY: folder / "ca.crt",
    }


@pytest.mark.parametrize("certificates", [False, True], ids=["secret", "certificates"])
def test_the_example_configuration_is_valid(tmp_path: Path, certificates: bool) -> None:
    """It is valid unchanged, and with the line for certificates between the nodes."""
    text = (SYSTEMD / "lmqcluster.toml").read_text(encoding="utf-8")
    assert "\n# raft_tls_ca = " in text
    if certificates:
        text = text.replace("\n# raft_tls_ca = ", "\nraft_tls_ca = ")
    files = installed(tmp_path)
    for name, path in files.items():
        text = text.replace(f'"{name}"', f'"{path}"')
    (tmp_path / "node.toml").write_text(text)
    config = load_config({}, environ={}, file=tmp_path / "node.toml")
    assert len(config.members()) == 3
    assert str(config.data_dir) == "/var/lib/lmqcluster"
    assert config.raft_tls_ca == (files[AUTHORITY] if certificates else None)
    assert "/etc/lmqcluster" not in text.split("name =", 1)[1]


class Service:
    """The node that the unit runs on the machine, as a client sees it."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        files = installed(folder)
        self.machine = machine
        context = ssl.create_default_context(cafile=files[AUTHORITY])
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
        for name, path in files.items():
            machine.write(name, path.read_text())
        # Everything in the example except the other members.
        settings = tomllib.loads((SYSTEMD / "lmqcluster.toml").read_text(encoding="utf-8"))
        del settings["peers"]
        for listener in ("http", "rpc", "raft"):
            settings[listener] = f"127.0.0.1:{ports.take()}"
        self.http = settings["http"]
        self.configuration = "\n".join(f'{name} = "{value}"' for name, value in settings.items())
        machine.write(CONFIGURATION, self.configuration)

    def fetch(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of a request with the administrator's token; status 0 without an answer."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            return fetch(self.http, path, body, headers=headers, timeout_s=60, scheme="https", opener=self._opener)
        except OSError:
            return 0, b""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A machine with the unit installed and configured, not started."""
    reason = why_not() if builds_everything() else "make deploy-check boots a systemd"
    if reason is not None:
        pytest.skip(reason)
    with Machine(tmp_path_factory.mktemp("machine")) as machine:
        yield Service(machine, tmp_path_factory.mktemp("files"))


def test_a_node_runs_in_the_sandbox(service: Service) -> None:
    machine = service.machine
    started = machine.systemctl("start", "lmqcluster")
    assert started.returncode == 0, started.stderr + machine.log()
    # Type=notify: systemctl has waited until the node listened.
    assert service.fetch("/livez")[0] == 200
    wait_for(lambda: service.fetch("/readyz")[0] == 200, "a leader")
    wait_for(lambda: "n1 leads in term" in machine.property("StatusText"), "the status line")

    process = machine.main_process()
    status = Path(f"/proc/{process}/status").read_text()
    assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)
    for place in ("/etc", "/usr", "/opt/lmqcluster", "/var/log", "/var/lib"):
        refused = machine.inside("touch", f"{place}/written", of=process)
        assert "Read-only file system" in refused.stderr, place
    assert machine.inside("ls", "-A", "/home", "/root", of=process).stdout.split() in ([], ["/home:", "/root:"])
    assert "node.json" in machine.inside("ls", "/var/lib/lmqcluster").stdout


def test_certificates_and_the_token_are_reloaded(service: Service) -> None:
    assert service.machine.systemctl("reload", "lmqcluster").returncode == 0
    wait_for(lambda: "admin token reloaded" in service.machine.log(), "the reload")
    wait_for(lambda: service.machine.property("ActiveState") == "active", "the end of the reload")
    assert service.fetch("/readyz")[0] == 200


def test_acknowledged_messages_survive_a_kill(service: Service) -> None:
    machine = service.machine
    assert service.fetch("/messages/sandbox", b"kept")[0] == 200, machine.log()
    machine.kill()
    wait_for(lambda: machine.property("NRestarts") == "1" and machine.property("ActiveState") == "active", "a restart")
    wait_for(lambda: service.fetch("/readyz")[0] == 200, "a leader")
    assert service.fetch("/messages/sandbox?t=30") == (200, b"kept")


def test_it_stops_in_order(service: Service) -> None:
    machine = service.machine
    assert machine.systemctl("stop", "lmqcluster").returncode == 0
    assert machine.property("Result") == "success"
    assert machine.property("ExecMainStatus") == "0"
    assert '"event": "stopped"' in machine.log()


def test_a_node_comes_back_when_it_can_listen(service: Service) -> None:
    machine = service.machine
    host, _, port = service.http.rpartition(":")
    with socket.create_server((host, int(port))):
        machine.systemctl("start", "--no-block", "lmqcluster")
        wait_for(lambda: machine.property("ExecMainStatus") == "69", "the node to give up for now")
        assert machine.property("ActiveState") != "failed"
    wait_for(lambda: service.fetch("/livez")[0] == 200, "a start without an operator")
    assert machine.systemctl("stop", "lmqcluster").returncode == 0


def test_a_wrong_configuration_is_not_tried_again(service: Service) -> None:
    machine = service.machine
    machine.write(CONFIGURATION, f'no_such_option = "1"\n{service.configuration}')
    assert machine.systemctl("start", "lmqcluster").returncode != 0
    assert machine.property("ExecMainStatus") == "78"
    assert machine.property("ActiveState") == "failed"
    assert "no_such_option" in machine.log()
