"""TLS and tokens end to end: certificates from lmq-admin, a node that uses them, the programs and the Python client."""

from __future__ import annotations

import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import click
import pytest
from click.testing import CliRunner
from cryptography import x509
from lmqcluster_cli.admin.program import cli
from lmqcluster_cli.shared.errors import CliError

from lmqcluster import Client, LmqError
from lmqcluster.node.access.tls import ServerTls
from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.load import load_config

from .cluster import NodeProcess, wait_for
from .programs import run

SECRET = "a token of this node"


def init(*arguments: str) -> str:
    """Run ``lmq-admin tls init``; return its output.

    Raises: what the command raises.
    """
    done = CliRunner().invoke(cli, ["tls", "init", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


class TlsNode:
    """A node with TLS, and what its clients need; with `asks_clients` it requires client certificates."""

    def __init__(self, folder: Path, *arguments: str, asks_clients: bool = False) -> None:
        self.folder = folder
        self.certificates = folder / "tls"
        self.ca = str(self.certificates / "ca.crt")
        self.token_file = folder / "token"
        self.token_file.write_text(SECRET + "\n")
        self.renew()
        self.context = ssl.create_default_context(cafile=self.ca)
        self.environment = {"LMQ_CA_FILE": self.ca}
        options = {"tls-cert": self.certificates / "n1.crt", "tls-key": self.certificates / "n1.key"}
        if asks_clients:
            options["tls-client-ca"] = Path(self.ca)
            init("client", "--dir", str(self.certificates))
            bundle = folder / "client.pem"
            bundle.write_text("".join((self.certificates / f"client.{end}").read_text() for end in ("crt", "key")))
            self.context.load_cert_chain(bundle)
            self.environment["LMQ_CERT_FILE"] = str(bundle)
        flags = [f"--{name}={value}" for name, value in {**options, "admin-token-file": self.token_file}.items()]
        self.process = NodeProcess(folder, arguments=[*flags, "--durability=memory", *arguments])

    def renew(self) -> None:
        init("n1=node.example", "--dir", str(self.certificates), "--renew")

    def admin(self, *arguments: str, token: str | None = SECRET) -> tuple[int, str, str]:
        environment = {"LMQ_NODE": self.process.http, **self.environment}
        if token is not None:
            environment["LMQ_TOKEN"] = token
        return run("lmq-admin", *arguments, environment=environment)

    def get(self, path: str, token: str | None = None) -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"https://{self.process.http}{path}", headers=headers)
        return urllib.request.urlopen(request, context=self.context, timeout=10)

    def status_of(self, path: str, token: str | None = None) -> int | None:
        try:
            with self.get(path, token) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code
        except OSError:
            return None

    def serial(self, address: str) -> str:
        """Return the serial number of the certificate that a port presents."""
        host, port = address.rsplit(":", 1)
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            self.context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            certificate = secure.getpeercert()
            assert certificate is not None
            return str(certificate["serialNumber"])

    def __enter__(self) -> Self:
        self.process.start(wait=False)
        wait_for(lambda: self.status_of("/readyz") == 200, "the node is ready")
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()


@contextmanager
def client(node: TlsNode, token: str | None, ca: str | None = None) -> Iterator[Client]:
    with Client(node.process.rpc, token=token, tls_ca=ca or node.ca, timeout_s=20) as opened:
        yield opened


def test_a_node_with_tls_and_tokens_is_used_through_the_programs_and_the_client(tmp_path: Path) -> None:
    with TlsNode(tmp_path) as node:
        assert node.status_of("/livez") == 200
        code, _, error = node.admin("queue", "ls", token=None)
        assert code == 77
        assert "a token is needed" in error
        assert "pass yours with --token-file" in error
        assert node.admin("queue", "ls", token="wrong")[0] == 77
        code, secret, error = node.admin("token", "create", "worker", "--role", "write", "--queues", "^jobs")
        assert (code, error) == (0, "")
        worker = secret.strip()
        with client(node, worker) as lmq:
            lmq.push("jobs", "x" * 300_000)
            lmq.push_many("jobs", ["y"] * 100)
            message = lmq.pull("jobs", timeout=0)
            assert message is not None
            assert len(message.content) == 300_000
            message.ack()
            with pytest.raises(LmqError, match="'worker' covers queues that match"):
                lmq.push("theirs", "x")
            assert len(lmq.pull_many("jobs", 200)) == 100
            # Sequential calls use a separate connection, also with TLS and the token.
            for number in range(5):
                lmq.push("jobs", number)
                found = lmq.pull("jobs", 60)
                assert found is not None
                assert (found.content, found.ack()) == (number, True)
            assert lmq._direct._line is not None
        code, table, _ = node.admin("token", "list")
        assert code == 0
        assert [line.split("\t")[:3] for line in table.splitlines()[-1:]] == [["worker", "write", "^jobs"]]
        assert node.admin("token", "create", "worker", "--role", "read")[0] == 65
        assert node.admin("token", "delete", "worker", "--yes")[0] == 0
        assert node.admin("token", "delete", "worker", "--yes")[0] == 66
        with pytest.raises(LmqError) as refused, client(node, worker):
            pass
        assert refused.value.code == "unauthorized"
        assert run("lmq", "ping", "--node", node.process.http, "--ca-file", node.ca).out == "pong\n"


def test_a_client_that_does_not_trust_the_authority_cannot_connect(tmp_path: Path) -> None:
    with TlsNode(tmp_path) as node:
        other = tmp_path / "other"
        init("n1", "--dir", str(other))
        flags = ("--node", node.process.http, "--token-file", str(node.token_file), "--ca-file", str(other / "ca.crt"))
        done = run("lmq-admin", "status", *flags)
        assert done.code == 77
        assert "certificate verify failed" in done.one_line_error()
        with pytest.raises(LmqError, match="certificate verify failed"), client(node, SECRET, str(other / "ca.crt")):
            pass
        host, port = node.process.rpc.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 20) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"pong" not in plain.recv(1000)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(node.ca)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection((host, int(port)), 20) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            old.wrap_socket(plain, server_hostname=host),
        ):
            pass


def test_changed_files_are_loaded_without_a_signal(tmp_path: Path) -> None:
    """For clients and for peers; a file that the node cannot use is logged and counted, and changes nothing."""
    node = TlsNode(tmp_path)
    node.process.arguments += (f"--raft-tls-ca={node.ca}",)
    node.context.load_cert_chain(node.certificates / "n1.crt", node.certificates / "n1.key")
    with node:
        before = node.serial(node.process.raft)
        assert before == node.serial(node.process.http)
        node.renew()
        wait_for(lambda: before not in (node.serial(node.process.http), node.serial(node.process.raft)), "the renewal")
        renewed = node.serial(node.process.http)
        (node.certificates / "n1.key").write_text("no key")
        wait_for(lambda: "keeping the old ones" in node.process.log(), "the node complains")
        with node.get("/metrics", SECRET) as answer:
            assert b"\nlmq_credentials_outdated 1\n" in answer.read()
        assert node.serial(node.process.http) == node.serial(node.process.raft) == renewed


def test_certificate_and_token_are_reloaded_without_a_restart(tmp_path: Path) -> None:
    with TlsNode(tmp_path) as node, client(node, SECRET) as lmq:
        before = node.serial(node.process.rpc)
        assert before == node.serial(node.process.http)
        node.renew()
        node.token_file.write_text("another token of this node")
        node.process.signal(signal.SIGHUP)
        wait_for(lambda: node.status_of("/v1/access", SECRET) == 401, "the new token is known")
        assert node.status_of("/v1/access", "another token of this node") == 200
        assert node.serial(node.process.http) == node.serial(node.process.rpc) != before
        with pytest.raises(LmqError) as refused:
            lmq.push("jobs", "with the old token")
        assert refused.value.code in ("unauthorized", "unknown_outcome")
        # An unusable certificate changes nothing.
        renewed = node.serial(node.process.http)
        (node.certificates / "n1.key").write_text("no key")
        node.process.signal(signal.SIGHUP)
        wait_for(lambda: "keeping the old ones" in node.process.log(), "the node complains")
        assert node.serial(node.process.http) == renewed
        assert node.process.stop() == 0


CBC = "ECDHE-ECDSA-AES256-SHA384:ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA384"
AEAD = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305"


@pytest.mark.parametrize(
    ("ciphers", "version"), [(CBC, None), (AEAD, "TLSv1.2"), (f"{CBC}:{AEAD}", "TLSv1.2"), ("AES256-GCM-SHA384", None)]
)
def test_version_1_2_has_authenticated_encryption_and_forward_secrecy(
    tmp_path: Path, ciphers: str, version: str | None
) -> None:
    init("n1", "--dir", str(tmp_path))
    served = ServerTls(tmp_path / "n1.crt", tmp_path / "n1.key", None).context
    context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = served.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (client, server) * 3:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLError:
        assert version is None
    else:
        assert (client.version(), server.version()) == (version, version)


def test_a_node_can_require_client_certificates(tmp_path: Path) -> None:
    with TlsNode(tmp_path, asks_clients=True) as node:
        stranger = ssl.create_default_context(cafile=node.ca)
        request = f"https://{node.process.http}/livez"
        with pytest.raises(OSError):  # noqa: PT011  an alert or a reset, as it happens
            urllib.request.urlopen(request, context=stranger, timeout=20).close()
        assert node.admin("status")[0] == 0


def test_a_start_without_a_usable_certificate_is_refused(tmp_path: Path) -> None:
    init("a", "b", "--dir", str(tmp_path))
    cert = {"tls_cert": str(tmp_path / "a.crt")}
    cases: dict[str, dict[str, str]] = {
        "needs tls_key": cert,
        "without tls_cert": {"tls_key": str(tmp_path / "a.key")},
        "no certificate with its key": {**cert, "tls_key": str(tmp_path / "b.key")},
        "No such file": {**cert, "tls_key": str(tmp_path / "absent.key")},
    }
    for text, flags in cases.items():
        with pytest.raises(ConfigError, match=text):
            load_config(flags, environ={})
    load_config({**cert, "tls_key": str(tmp_path / "a.key")}, environ={})


def test_only_the_owner_can_read_keys_and_no_file_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    made = init("n1=10.0.0.1,n1.example", "--dir", str(folder), "--no-loopback")
    assert made.split() == [str(folder / name) for name in ("ca.crt", "ca.key", "n1.crt", "n1.key")]
    assert [(folder / name).stat().st_mode & 0o777 for name in ("ca.key", "n1.key")] == [0o600, 0o600]
    authority = (folder / "ca.crt").read_bytes()
    with pytest.raises(CliError, match="already exists"):
        init("n1", "--dir", str(folder))
    init("n2", "--dir", str(folder))
    assert (folder / "ca.crt").read_bytes() == authority
    certificate = x509.load_pem_x509_certificate((folder / "n1.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["10.0.0.1", "n1.example", "urn:lmqcluster:node:n1"]
    for wrong in ("ca", "n1/x", "n3=not a host"):
        with pytest.raises((click.UsageError, CliError)):
            init(wrong, "--dir", str(folder))
