"""Tokens and certificates that are replaced under running clients, which read them from files."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import AsyncClient, Client, LmqError

from ..unit.client.client_cluster import async_test
from .guarded_node import ADMIN, Guarded, guarded_node
from .test_access_tls import SECRET, TlsNode, init


class Rotated:
    """A token's file, and the steps with which an administrator replaces the token."""

    def __init__(self, guarded: Guarded, file: Path) -> None:
        self._guarded = guarded
        self.file = file
        self.node = f"127.0.0.1:{guarded.rpc.port}"
        self._number = 0

    async def make(self) -> None:
        """Create a token and write it into the file."""
        self._number += 1
        self.file.write_text(await self._guarded.token(f"worker-{self._number}", "write") + "\n")

    async def delete(self) -> None:
        """Delete the second newest token, or the only one."""
        number = max(1, self._number - 1)
        assert (await self._guarded.ask("DELETE", f"/v1/tokens/worker-{number}", ADMIN))[0] == 204

    async def next(self) -> None:
        """Replace the token, and then delete the old one."""
        await self.make()
        await self.delete()


@async_test
async def test_a_client_continues_with_the_new_token_of_its_file(tmp_path: Path) -> None:
    async with guarded_node(tmp_path) as guarded:
        tokens = Rotated(guarded, tmp_path / "token")
        await tokens.make()
        async with AsyncClient(tokens.node, token_file=tokens.file, timeout_s=20) as client:
            waiting = asyncio.ensure_future(client.pull("late"))
            for number in range(300):
                assert await client.push("numbers", number) == "ok"
                if number % 100 == 50:
                    await tokens.next()
            assert [message.content for message in await client.pull_many("numbers", 1000)] == list(range(300))
            await client.push("late", "x")
            assert await waiting is not None


@async_test
async def test_a_blocking_client_does_so_during_a_call(tmp_path: Path) -> None:
    async with guarded_node(tmp_path) as guarded:
        tokens = Rotated(guarded, tmp_path / "token")
        await tokens.make()
        client = Client(tokens.node, token_file=tokens.file, timeout_s=20)
        try:
            for number in range(30):
                assert await asyncio.to_thread(client.push, "numbers", number) == "ok"
                if number % 10 == 5:
                    await tokens.next()
            found = await asyncio.to_thread(client.pull_many, "numbers", 100)
            assert [message.content for message in found] == list(range(30))
        finally:
            await asyncio.to_thread(client.close)


@async_test
async def test_a_wrong_token_is_reported_after_one_more_attempt(tmp_path: Path) -> None:
    async with guarded_node(tmp_path) as guarded:
        tokens = Rotated(guarded, tmp_path / "token")
        await tokens.make()
        async with AsyncClient(tokens.node, token_file=tokens.file, timeout_s=20) as client:
            shown: list[bytes] = []
            authenticate = guarded.node.access.authenticate

            def watch(secret: bytes, *arguments: object, **options: object) -> object:
                shown.append(secret)
                return authenticate(secret, *arguments, **options)  # type: ignore[arg-type]

            guarded.node.access.authenticate = watch  # type: ignore[method-assign, assignment]
            last = tokens.file.read_text().strip().encode()
            for content in (last.decode(), "another one that is wrong", "", None):
                if content is None:
                    tokens.file.unlink()
                else:
                    tokens.file.write_text(content)
                if not shown:
                    await tokens.delete()
                shown.clear()
                with pytest.raises(LmqError) as caught:
                    await client.push("numbers", 1)
                assert caught.value.code == "unauthorized"
                assert not caught.value.retryable
                assert shown == [last, content.encode()] if content and content.encode() != last else [last]
                last = shown[-1]
            # It works again once the file holds a valid token.
            await tokens.make()
            assert await client.push("numbers", 1) == "ok"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TlsNode]:
    """A node with TLS."""
    with TlsNode(tmp_path) as served:
        yield served


def test_a_client_trusts_the_new_authority_of_its_file(node: TlsNode, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.crt"
    trusted.write_text(Path(node.ca).read_text())
    with Client(node.process.rpc, token=SECRET, tls_ca=trusted, timeout_s=20) as client:
        assert client.push("q", "before") == "ok"
        other = tmp_path / "other"
        init("n1", "--dir", str(other))
        for name in ("n1.crt", "n1.key"):
            (node.certificates / name).write_bytes((other / name).read_bytes())
        node.process.stop()
        node.process.start(wait=False)
        with pytest.raises(LmqError, match="certificate verify failed"):
            client.push("q", "not trusted")
        # A partly written file changes nothing.
        trusted.write_text("no certificate")
        with pytest.raises(LmqError, match="certificate verify failed"):
            client.push("q", "not trusted")
        trusted.write_text((other / "ca.crt").read_text())
        assert client.push("q", "after") == "ok"


def test_a_signal_reloads_the_certificate_and_keeps_connections(node: TlsNode, tmp_path: Path) -> None:
    token = tmp_path / "client.token"
    token.write_text(SECRET)
    with Client(node.process.rpc, token_file=token, tls_ca=node.ca, timeout_s=20) as client:
        client.push("q", "before")
        token.write_text("a new token")
        node.token_file.write_text("a new token")
        node.renew()
        node.process.signal(signal.SIGHUP)
        for number in range(20):
            assert client.push("q", number) == "ok"
