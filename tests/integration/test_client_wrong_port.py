"""A wrong port, or TLS on a plain port: clients and programs report it at once and clearly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from lmqcluster import AsyncClient, LmqError, Outcome

from .cluster import NodeProcess
from .programs import Result, run_here
from .test_access_tls import SECRET, TlsNode

GENEROUS_S = 60.0
PATIENT_S = 300.0
"""Duration of the client's own retries: an error long before that was reported at once."""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    with TlsNode(tmp_path_factory.mktemp("secure")) as node:
        yield node


def address(node: NodeProcess, secure: TlsNode, port: str) -> str:
    """Return the address of ``http``, ``rpc`` or ``raft`` of the plain node, or ``https`` or ``rpcs`` of the
    one with TLS.
    """
    if port.endswith("s"):
        return {"https": secure.process.http, "rpcs": secure.process.rpc}[port]
    return {"http": node.http, "rpc": node.rpc, "raft": node.raft}[port]


async def push(addresses: str, **options: Any) -> LmqError | None:
    """Return the error of a push, with a client that would retry for five minutes; None if it succeeds."""
    async with asyncio.timeout(GENEROUS_S):
        client = AsyncClient(addresses, timeout_s=PATIENT_S, **options)
        try:
            await client.push("wrong-port", "x")
        except LmqError as exc:
            return exc
        finally:
            await client.close()
    return None


# --- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "with_tls", "reason"),
    [
        ("http", False, "HTTP without TLS answers there, not MessagePack-RPC without TLS; give the address of MessagePack-RPC"),
        ("http", True, "HTTP without TLS answers there, not MessagePack-RPC over TLS; give the address of MessagePack-RPC"),
        ("https", False, "HTTP over TLS answers there, not MessagePack-RPC without TLS; give the address of MessagePack-RPC"),
        ("https", True, "HTTP over TLS answers there, not MessagePack-RPC over TLS; give the address of MessagePack-RPC"),
        ("rpc", True, "MessagePack-RPC without TLS answers there, not MessagePack-RPC over TLS; leave tls_ca out"),
        ("rpcs", False, "MessagePack-RPC over TLS answers there, not MessagePack-RPC without TLS; give tls_ca"),
    ],
)  # fmt: skip
def test_a_client_reports_what_answers(
    node: NodeProcess, secure: TlsNode, port: str, with_tls: bool, reason: str
) -> None:
    where = address(node, secure, port)
    options = {"tls_ca": secure.ca, "token": SECRET} if with_tls else {}
    error = asyncio.run(push(where, **options))
    assert error is not None
    assert (error.code, error.retryable, error.outcome) == ("unreachable", False, Outcome.NOT_APPLIED)
    assert error.message.startswith(f"{where}: {reason}")


def test_one_wrong_address_among_right_ones_does_no_harm(node: NodeProcess) -> None:
    assert asyncio.run(push(f"{node.http},{node.raft},{node.rpc}")) is None


def test_a_port_without_a_recognizable_protocol_is_retried(node: NodeProcess) -> None:
    """A node that is stopping looks like this: the client retries until its deadline, and then reports what it saw."""

    async def attempt() -> LmqError:
        async with AsyncClient(node.raft, timeout_s=1.0) as client:
            await client.push("wrong-port", "x")
        raise AssertionError("the Raft port took a push")

    with pytest.raises(LmqError) as caught:
        asyncio.run(attempt())
    assert caught.value.code == "unreachable"
    assert node.raft in caught.value.message


# --- programs ---------------------------------------------------------------------------------------------------------


def status(where: str, secure: TlsNode | None = None) -> Result:
    environment = {} if secure is None else {"LMQ_CA_FILE": secure.ca, "LMQ_TOKEN": SECRET}
    return run_here("--node", where, "status", environment=environment)


@pytest.mark.parametrize(
    ("port", "with_tls", "reason"),
    [
        (
            "rpc",
            False,
            "MessagePack-RPC without TLS answers there, not HTTP without TLS; --node takes the HTTP address",
        ),
        ("rpc", True, "MessagePack-RPC without TLS answers there, not HTTP over TLS; --node takes the HTTP address"),
        ("rpcs", False, "MessagePack-RPC over TLS answers there, not HTTP without TLS; --node takes the HTTP address"),
        ("rpcs", True, "MessagePack-RPC over TLS answers there, not HTTP over TLS; --node takes the HTTP address"),
        ("http", True, "HTTP without TLS answers there, not HTTP over TLS; omit --ca-file"),
        ("https", False, "HTTP over TLS answers there, not HTTP without TLS; pass --ca-file"),
    ],
)
def test_a_program_reports_what_answers(
    node: NodeProcess, secure: TlsNode, port: str, with_tls: bool, reason: str
) -> None:
    where = address(node, secure, port)
    result = status(where, secure if with_tls else None)
    assert (result.code, result.out) == (69, "")
    assert f"cannot reach {where}: {reason}" in result.one_line_error()


@pytest.mark.parametrize("form", ["http://{}", "http://{}/", "http://{}/console/#/queues"])
def test_a_node_may_be_given_as_a_url(node: NodeProcess, form: str) -> None:
    assert status(form.format(node.http)).code == 0
    assert run_here("status", environment={"LMQ_NODE": form.format(node.http)}).code == 0


def test_https_selects_tls(secure: TlsNode) -> None:
    assert status(f"https://{secure.process.http}", secure).code == 0
    untrusted = run_here("--node", f"https://{secure.process.http}", "status")
    assert untrusted.code == 77
    assert "certificate" in untrusted.one_line_error()


@pytest.mark.parametrize("text", ["ftp://127.0.0.1:9980", "http://", "http://u@127.0.0.1:9980", "http://127.0.0.1:x"])
def test_invalid_addresses_are_refused(text: str) -> None:
    result = run_here("--node", text, "status")
    assert result.code == 2
    assert "--node" in result.one_line_error()
