"""The examples of load balancers run in front of nodes with TLS; one node dies."""

from __future__ import annotations

import contextlib
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lmqcluster_cli.shared.certificates import Authority

from tests.installing import debian_program
from tests.integration.cluster import clean_environment, ports, reaper, wait_for
from tests.integration.test_access_tls import SECRET, TlsNode

from .tools import DEPLOY

EXAMPLES = DEPLOY / "load-balancers"


class Balanced:
    """Two nodes, and the certificate of a balancer in front of them.

    Attributes:
        port: where the balancer listens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = ports.take()
        for name in ("first", "second", "balancer"):
            (folder / name).mkdir()
        options = ("--http-idle-seconds-max=75",)
        self.nodes = [TlsNode(folder / name, *options) for name in ("first", "second")]
        cert, key = Authority.create(folder / "balancer").issue("balancer", ["127.0.0.1"], 1, replace=False)
        self.context = ssl.create_default_context(cafile=folder / "balancer" / "ca.crt")
        (folder / "lmq.pem").write_text(cert.read_text() + key.read_text())
        (folder / "lmq.crt").write_text(cert.read_text())
        (folder / "lmq.key").write_text(key.read_text())
        (folder / "lmq-ca.crt").write_text("".join(Path(node.ca).read_text() for node in self.nodes))

    def example(self, name: str, place: str) -> Path:
        """Return the example with the files, ports and nodes of the test; the third node does not exist."""
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        for host, node in (("10.0.0.1", self.nodes[0]), ("10.0.0.2", self.nodes[1])):
            text = text.replace(f"{host}:9980", node.process.http).replace(f"{host}:9324", node.process.sqs)
        text = text.replace("10.0.0.3:", "127.0.0.1:").replace(place, str(self.folder))
        text = text.replace("proxy_ssl_name queues.example.org", "proxy_ssl_name node.example")
        text = re.sub(r"(bind :|listen )9980", rf"\g<1>{self.port}", text)
        text = re.sub(r"bind :9324", f"bind :{ports.take()}", text)
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def push(self) -> bool:
        """Push a message through the balancer, once; return whether a node took it."""
        headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "text/plain"}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/messages/q", b"x", headers)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stored(self) -> int:
        """Return the messages on all running nodes."""
        count = 0
        for node in self.nodes:
            if node.process.running:
                _code, out, _err = node.admin("queue", "ls", "--columns", "ready")
                count += sum(int(line) for line in out.split() if line.isdigit())
        return count


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[Balanced]:
    """Two running nodes."""
    made = Balanced(tmp_path)
    with made.nodes[0], made.nodes[1]:
        yield made


@contextlib.contextmanager
def running(folder: Path, *command: str) -> Iterator[None]:
    """Run a balancer in the foreground until the block ends."""
    with (folder / "balancer.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment(), start_new_session=True)
    reaper.tell("+", process.pid)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
        reaper.tell("-", process.pid)


@pytest.mark.parametrize("program", ["haproxy", "nginx"])
def test_a_balancer_serves_while_a_node_dies(program: str, balanced: Balanced) -> None:
    folder = balanced.folder
    if program == "haproxy":
        path = balanced.example("haproxy.cfg", "/etc/haproxy")
        command = [debian_program("haproxy", "haproxy"), "-db", "-f", str(path)]
    else:
        example = balanced.example("nginx.conf", "/etc/nginx")
        path = folder / "main.conf"
        settings = f"pid {folder}/pid; daemon off; error_log stderr; user root; events {{}}"
        path.write_text(f"{settings}\nhttp {{ access_log off; include {example}; }}\n")
        command = [debian_program("nginx", "nginx-light"), "-p", str(folder), "-c", str(path)]
    with running(folder, *command):
        wait_for(balanced.push, "the balancer reaches a node")
        assert all(balanced.push() for _ in range(20))
        assert balanced.stored() == 21
        balanced.nodes[0].process.kill()
        before = balanced.stored()
        # A request that fails on the way is not repeated, so the client sees it at most once for each connection.
        wait_for(balanced.push, "the other node serves")
        assert all(balanced.push() for _ in range(20))
        assert balanced.stored() == before + 21
