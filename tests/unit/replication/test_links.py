"""Links between peers on real sockets: sealed, within TLS, and against attackers that change bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
import uvloop
from cryptography import x509
from lmqcluster_cli.shared.certificates import Authority

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.peers import handshake, messages
from lmqcluster.replication.peers.dialer import ask, dial
from lmqcluster.replication.peers.handshake import HandshakeError, Identity
from lmqcluster.replication.peers.security import PeerSecurity
from lmqcluster.replication.peers.tls import PeerTls
from lmqcluster.replication.peers.transport import PeerTransport
from lmqcluster.wire.limits import FRAME_BYTES_MAX

SECRET = b"the cluster's secret"
LISTENER, DIALER = Identity("n2", 1, "127.0.0.1:1"), Identity("n1", 1, "127.0.0.1:2")
DEADLINE_S = 120.0
MARKER = b"a body that no other peer may read"

runners = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def _answered(_verb: str, arguments: list[Any]) -> dict[str, Any]:
    return {"ok": True, "result": {"arguments": arguments}}


@contextlib.asynccontextmanager
async def listening(security: PeerSecurity) -> AsyncIterator[tuple[str, asyncio.Queue[dict[str, Any]]]]:
    """Yield the address of a listener and the queue of the messages it receives."""
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    owner = PeerTransport(LISTENER, security, lambda _peer, message: received.put_nowait(message), _answered)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield f"127.0.0.1:{await owner.listen('127.0.0.1', 0)}", received
    finally:
        await owner.close()


def proposal(sequence: int, size: int = 0) -> dict[str, Any]:
    """Return a message that carries bytes."""
    return {"type": "propose", "sequence": sequence, "batch": MARKER + bytes(size)}


async def talks(dialer: PeerSecurity, listener: PeerSecurity) -> None:
    """Check that messages of all sizes arrive in order, and that questions are answered."""
    async with listening(listener) as (address, received):
        stream = await dial(DIALER, dialer, address, "n2")
        sizes = [0, 1, 70_000, 3_000_000]
        stream.write(*[messages.encode(proposal(number, size)) for number, size in enumerate(sizes)])
        for number, size in enumerate(sizes):
            message = await received.get()
            assert (message["sequence"], len(message["batch"])) == (number, len(MARKER) + size)
        stream.close()
        assert await ask(DIALER, dialer, address, "cluster", ["x"], timeout_s=DEADLINE_S) == {"arguments": ["x"]}


async def refuses(dialer: PeerSecurity, listener: PeerSecurity, match: str) -> None:
    """Check that the dialer is refused, with the reason."""
    async with listening(listener) as (address, received):
        with pytest.raises(HandshakeError, match=match):
            await dial(DIALER, dialer, address, "n2")
        assert received.empty()


# --- sealed
# -----------------------------------------------------------------------------------------------------------------


@runners
def test_peers_with_a_secret_and_without(runner: Callable[..., None]) -> None:
    runner(talks(PeerSecurity(SECRET), PeerSecurity(SECRET)))
    runner(talks(PeerSecurity(), PeerSecurity()))


@pytest.mark.parametrize(("dialer", "listener"), [(b"another secret", SECRET), (b"", SECRET), (SECRET, b"")])
def test_another_secret_is_refused(dialer: bytes, listener: bytes) -> None:
    asyncio.run(refuses(PeerSecurity(dialer), PeerSecurity(listener), "another cluster secret"))


@contextlib.asynccontextmanager
async def between(address: str, change: Callable[[int, bytes], bytes]) -> AsyncIterator[str]:
    """Yield a proxy in front of a listener; `change` gets each piece of the dialer's data, with its number."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, touch: bool) -> None:
        with contextlib.suppress(ConnectionError):
            number = 0
            while data := await reader.read(65536):
                writer.write(change(number, data) if touch else data)
                number += 1
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        both = (pump(reader, far_writer, True), pump(far_reader, writer, False))
        tasks.update(map(asyncio.ensure_future, both))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


HELLO_AND_PROOF = 2
"""Pieces that a dialer sends before its first message."""


async def _tampered(how: str) -> None:
    seen: list[bytes] = []
    all_seen = asyncio.Event()

    def change(number: int, data: bytes) -> bytes:
        seen.append(data)
        if number == HELLO_AND_PROOF + 1:
            all_seen.set()
        if number != HELLO_AND_PROOF + 1:
            return data
        before = seen[HELLO_AND_PROOF]
        return {"flip": data[:-1] + bytes([data[-1] ^ 1]), "repeat": before + data, "omit": b""}[how]

    async with listening(PeerSecurity(SECRET)) as (real, received), between(real, change) as address:
        stream = await dial(DIALER, PeerSecurity(SECRET), address, "n2")
        stream.write(messages.encode(proposal(0)))
        assert (await received.get())["sequence"] == 0
        stream.write(messages.encode(proposal(1)))
        if how == "omit":
            await all_seen.wait()
            stream.write(messages.encode(proposal(2)))
        await stream.closed.wait()
        assert received.empty()
        assert not any(MARKER in piece for piece in seen)


@pytest.mark.parametrize("how", ["flip", "repeat", "omit"])
def test_a_frame_that_was_changed_repeated_or_left_out_ends_the_connection(how: str) -> None:
    """An eavesdropper cannot read the messages."""
    asyncio.run(_tampered(how))


# --- unauthenticated peers
# --------------------------------------------------------------------------------------------------


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""


async def _ask_as_a_stranger() -> None:
    async with listening(PeerSecurity(SECRET)) as (address, _):
        said = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(messages.frame(handshake.hello(Identity("x", 1, "a:1"), b"k" * 32)))
            said.append(msgpack.unpackb(await _read_frame(reader)))
            writer.write(messages.frame(msgpack.packb([bytes(32)])))
            assert await _read_frame(reader) == b""
            writer.close()
        assert [[len(field) for field in fields] for fields in said] == [[32], [32]]
        assert said[0] != said[1]


async def _another_version() -> None:
    hello = [handshake.MAGIC, handshake.VERSION + 1, "n1", 1, "a:1", b"k" * 32]
    async with listening(PeerSecurity(SECRET)) as (address, _):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(messages.frame(msgpack.packb(hello)))
        assert await _read_frame(reader) == b""
        writer.close()


def test_a_peer_that_speaks_another_version_is_refused() -> None:
    asyncio.run(_another_version())


def test_a_stranger_who_dials_gets_a_fresh_key_and_nothing_else() -> None:
    asyncio.run(_ask_as_a_stranger())


# --- TLS
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with one authority each: of the cluster, with n1 and n2, and a foreign one, with n1."""
    folders = {}
    for name, nodes in (("ours", ("n1", "n2")), ("theirs", ("n1",))):
        folder = folders[name] = tmp_path_factory.mktemp(name)
        authority = Authority.create(folder)
        for node in nodes:
            authority.issue(node, ["127.0.0.1"], 10, replace=False)
    return folders


def guarded(
    folder: Path, node: str, ca: Path | None = None, *, secret: bytes = SECRET, required: bool = True
) -> PeerSecurity:
    """Return security with a certificate of one authority that trusts it or another one."""
    tls = PeerTls(folder / f"{node}.crt", folder / f"{node}.key", (ca or folder) / "ca.crt")
    return PeerSecurity(secret, tls, required)


@runners
def test_peers_within_tls(authorities: dict[str, Path], runner: Callable[..., None]) -> None:
    ours = authorities["ours"]
    runner(talks(guarded(ours, "n1"), guarded(ours, "n2")))
    runner(talks(guarded(ours, "n1", secret=b""), guarded(ours, "n2", secret=b"")))


def test_a_certificate_does_not_replace_the_secret(authorities: dict[str, Path]) -> None:
    ours = authorities["ours"]
    asyncio.run(refuses(guarded(ours, "n1", secret=b"other"), guarded(ours, "n2"), "another cluster secret"))


def test_a_certificate_of_another_authority_is_refused_by_both_sides(authorities: dict[str, Path]) -> None:
    ours, theirs = authorities["ours"], authorities["theirs"]
    asyncio.run(refuses(guarded(theirs, "n1", ours), guarded(ours, "n2"), "refused TLS: unknown ca"))
    asyncio.run(refuses(guarded(ours, "n1"), guarded(theirs, "n1", ours), "certificate is not good"))


def test_a_certificate_that_is_not_marked_as_a_nodes_is_refused_by_both_sides(
    authorities: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of a client or of another server is refused, although the same authority has signed it."""
    ours = authorities["ours"]
    with monkeypatch.context() as patch:
        patch.setattr("lmqcluster_cli.shared.certificates.NODE_MARK", "urn:example:client:")
        Authority.open(ours).issue("client", ["127.0.0.1"], 10, replace=True)
    with pytest.raises(ValueError, match="is not marked as a node's"):
        guarded(ours, "client")
    with monkeypatch.context() as patch:
        patch.setattr("lmqcluster.replication.peers.tls._why_no_node", lambda _cert: None)
        stranger = guarded(ours, "client")
    # This checks the other side: its finding counts.
    asyncio.run(refuses(stranger, guarded(ours, "n2"), "closed the connection|certificate"))
    asyncio.run(refuses(guarded(ours, "n1"), stranger, "not marked as a node's"))


def test_without_tls_no_peer_connects_where_it_is_required(authorities: dict[str, Path]) -> None:
    ours = authorities["ours"]
    asyncio.run(refuses(PeerSecurity(SECRET), guarded(ours, "n2"), "closed the connection"))
    asyncio.run(refuses(guarded(ours, "n1"), PeerSecurity(SECRET), "closed the connection"))


def test_both_are_accepted_during_a_migration(authorities: dict[str, Path]) -> None:
    ours = authorities["ours"]
    either = guarded(ours, "n1", required=False)
    for other in (PeerSecurity(SECRET), guarded(ours, "n2", required=False), guarded(ours, "n2")):
        asyncio.run(talks(either, other))
        asyncio.run(talks(other, either))


async def _reloaded(folder: Path) -> None:
    security = guarded(folder, "n2")
    assert security.tls is not None
    old_key = (folder / "n2.key").read_bytes()
    async with listening(security) as (address, received):
        before = await dial(DIALER, guarded(folder, "n1"), address, "n2")
        Authority.open(folder).issue("n2", ["127.0.0.1"], 10, replace=True)
        security.tls.reload()
        after = await dial(DIALER, guarded(folder, "n1"), address, "n2")
        assert x509.load_pem_x509_certificate((folder / "n2.crt").read_bytes()).serial_number == after.peer_serial()
        assert before.peer_serial() != after.peer_serial()
        before.write(messages.encode(proposal(1)))
        assert (await received.get())["sequence"] == 1
        (folder / "n2.key").write_bytes(old_key)
        with pytest.raises(ValueError, match="no certificate with its key"):
            security.tls.reload()
        await talks(guarded(folder, "n1"), security)


def test_certificates_are_reloaded_for_new_connections(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    for node in ("n1", "n2"):
        authority.issue(node, ["127.0.0.1"], 10, replace=False)
    asyncio.run(_reloaded(tmp_path))


# --- the whole transport
# ----------------------------------------------------------------------------------------------------


def _deliver(inbox: asyncio.Queue[dict[str, Any]], _peer: PeerNode, message: dict[str, Any]) -> None:
    inbox.put_nowait(message)


async def _both_ways(first: PeerSecurity, second: PeerSecurity, act: Callable[..., Awaitable[None]]) -> None:
    """Run `act` with two transports that dial each other."""
    inboxes: list[asyncio.Queue[dict[str, Any]]] = [asyncio.Queue(), asyncio.Queue()]
    transports: list[PeerTransport] = []
    up = asyncio.Semaphore(0)
    for identity, security, inbox in ((DIALER, first, inboxes[0]), (LISTENER, second, inboxes[1])):
        transports.append(PeerTransport(identity, security, partial(_deliver, inbox), _answered))
        transports[-1].setOnNodeConnectedCallback(lambda _node: up.release())
    ports = [await one.listen("127.0.0.1", 0) for one in transports]
    async with asyncio.timeout(DEADLINE_S):
        for mine, other, port in ((transports[0], LISTENER, ports[1]), (transports[1], DIALER, ports[0])):
            mine.addNode(PeerNode(other.node_id, f"127.0.0.1:{port}"))
        for _ in transports:
            await up.acquire()
        await act(transports, inboxes)
    for one in transports:
        await one.close()


async def _answers_wait(transports: list[PeerTransport], inboxes: list[asyncio.Queue[dict[str, Any]]]) -> None:
    """Messages that promise durability leave after the sync, after those that need none, and are sealed in
    that order.
    """
    peer = PeerNode(LISTENER.node_id)
    reply = {"type": "append_reply", "term": 1, "seq": 1, "success": True, "match": 1, "hint": 0, "counts": True}
    assert transports[0].send(peer, reply)
    assert transports[0].send(peer, proposal(1))
    transports[0].flush(synced=False)
    assert (await inboxes[1].get())["type"] == "propose"
    assert transports[0].send(peer, proposal(2))
    transports[0].flush()
    assert [(await inboxes[1].get())["type"] for _ in range(2)] == ["propose", "append_reply"]


@pytest.mark.parametrize("kind", ["plain", "sealed", "tls"])
def test_order_of_messages_that_wait_for_a_sync(authorities: dict[str, Path], kind: str) -> None:
    ours = authorities["ours"]
    plain, sealed = PeerSecurity(), PeerSecurity(SECRET)
    pair = {"plain": (plain, plain), "sealed": (sealed, sealed), "tls": (guarded(ours, "n1"), guarded(ours, "n2"))}[
        kind
    ]
    asyncio.run(_both_ways(*pair, _answers_wait))


# --- large messages
# ---------------------------------------------------------------------------------------------------------


def beat(number: int) -> dict[str, Any]:
    return {"type": "where", "round": number}


async def _pieces(transports: list[PeerTransport], inboxes: list[asyncio.Queue[dict[str, Any]]]) -> None:
    """Small messages that are sent later overtake large ones; these arrive whole and in order."""
    peer = PeerNode(LISTENER.node_id)
    sizes = [messages.BULK_BYTES, 3 * messages.BULK_BYTES, 40_000_000]
    for number, size in enumerate(sizes):
        assert transports[0].send(peer, proposal(number, size))
    transports[0].flush()
    assert transports[0].send(peer, beat(1))
    transports[0].flush()
    received = [await inboxes[1].get() for _ in range(4)]
    assert received[0] == beat(1)
    assert [message["sequence"] for message in received[1:]] == [0, 1, 2]
    for message, size in zip(received[1:], sizes, strict=True):
        assert message["batch"] == MARKER + bytes(size)


@pytest.mark.parametrize("kind", ["plain", "sealed", "tls"])
@runners
def test_small_messages_overtake_large_ones(
    authorities: dict[str, Path], kind: str, runner: Callable[..., None]
) -> None:
    ours = authorities["ours"]
    plain, sealed = PeerSecurity(), PeerSecurity(SECRET)
    pair = {"plain": (plain, plain), "sealed": (sealed, sealed), "tls": (guarded(ours, "n1"), guarded(ours, "n2"))}[
        kind
    ]
    runner(_both_ways(*pair, _pieces))


async def _endless_pieces() -> None:
    async with listening(PeerSecurity()) as (address, received):
        stream = await dial(DIALER, PeerSecurity(), address, "n2")
        part = messages.encode({"type": "part", "data": bytes(1 << 20)})
        for _ in range((FRAME_BYTES_MAX >> 20) + 1):
            stream.write(part)
        await stream.closed.wait()
        assert received.empty()


def test_a_message_with_more_pieces_than_it_may_have_ends_the_connection() -> None:
    asyncio.run(asyncio.wait_for(_endless_pieces(), DEADLINE_S))
