"""Remains of refused requests and broken connections in a node whose garbage collector is off: no frame, no body."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import types
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

import lmqcluster
from lmqcluster.node.access.tokens import create_token
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.node import Node
from lmqcluster.server import ports_of
from lmqcluster.wire.address import Address
from lmqcluster.wire.errors import LmqError

from .cluster import ports
from .guarded_node import ADMIN
from .refusal_target import Kind, Target
from .refusals import BROKEN, CLUSTER_SECRET, FORBIDDEN, LATE, OTHERS, REFUSALS, prepare

SIZE = 64 * 1024
PORTS = ("http", "rpc", "queued", "sqs", "memcache", "text", "thrift", "raft")
PRODUCT = str(Path(lmqcluster.__file__).parent)


@contextlib.asynccontextmanager
async def open_node(folder: Path, **options: Any) -> AsyncIterator[tuple[Node, Target]]:
    """A node with all ports, in this process."""
    addresses: dict[str, Any] = {name: Address("127.0.0.1", ports.take()) for name in PORTS}
    node = Node(
        NodeConfig(
            name="n1", data_dir=folder, durability="memory", cluster_secret=CLUSTER_SECRET, **addresses, **options
        )
    )
    await node.start()
    opened = ports_of(node)
    for port in opened:
        await port.start()
    while node.replica.machine.state.version < node.replica.machine.state.VERSION_MAX:
        await node.service.sender.barrier()
    try:
        yield node, Target({name: str(address) for name, address in addresses.items()}, SIZE)
    finally:
        for port in opened:
            port.retire()
            await port.stop(1.0)
        await node.stop()


def remains(found: Iterable[object]) -> Counter[str]:
    """Return the frames of the product that are garbage, and the bytes of bodies that garbage refers to."""
    left: Counter[str] = Counter()
    for one in found:
        if isinstance(one, types.FrameType) and one.f_code.co_filename.startswith(PRODUCT):
            left[f"{Path(one.f_code.co_filename).name} {one.f_code.co_name}"] += 1
        for held in gc.get_referents(one):
            if isinstance(held, bytes | bytearray | str) and len(held) > SIZE // 16:
                left["bytes"] += len(held)
    return left


async def probe(kind: Kind, target: Target, node: Node) -> str:
    """Return the remains of two requests of a kind; empty for none."""
    gc.collect()
    await asyncio.to_thread(kind.check, target)
    # Of a batch that is refused in part, the rest is stored the first time.
    stored_bytes = node.replica.machine.state.totals.body_bytes
    await asyncio.to_thread(kind.check, target)
    async with asyncio.timeout(30):
        while any(gate.connections for gate in node.gates.all):  # noqa: ASYNC110 - there is no event for a closed connection
            await asyncio.sleep(0.002)
    for _ in range(5):
        # Cancelled tasks end in the next turns of the loop.
        await asyncio.sleep(0)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        left = remains(gc.garbage)
        left["bytes stored"] = node.replica.machine.state.totals.body_bytes - stored_bytes
        left["bytes held"] = node.gates.memory.clients_bytes + node.gates.memory.unauthenticated_bytes
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return f"{kind}: {dict(left)}" if any(left.values()) else ""


async def probe_all(kinds: Iterable[Kind], target: Target, node: Node) -> list[str]:
    """Return the remains of requests of these kinds."""
    gc.disable()
    gc.collect()
    # Existing objects are not examined repeatedly.
    gc.freeze()
    try:
        return [left for kind in kinds if (left := await probe(kind, target, node))]
    finally:
        gc.unfreeze()
        gc.enable()


def run(main: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@pytest.mark.parametrize("kinds", [REFUSALS, BROKEN], ids=["refusals", "broken connections"])
def test_nothing_is_left(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    async def main() -> None:
        async with open_node(tmp_path) as (node, target):
            await asyncio.to_thread(prepare, target.addresses["http"])
            assert await probe_all(kinds, target, node) == []

    run(main())


def test_nothing_is_left_of_requests_that_a_token_does_not_permit(tmp_path: Path) -> None:
    async def main() -> None:
        as_others = dict.fromkeys(("memcache_as", "text_as", "thrift_as"), OTHERS)
        async with open_node(tmp_path, admin_token=ADMIN.encode(), **as_others) as (node, target):
            secret = await create_token(node, OTHERS, "write", "^others$", None)
            async with asyncio.timeout(30):
                while node.access.named(OTHERS) is None:  # noqa: ASYNC110 - there is no event for a known token
                    await asyncio.sleep(0.01)
            assert await probe_all(FORBIDDEN, replace(target, secret=secret), node) == []

    run(main())


def test_nothing_is_left_of_requests_to_a_full_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_node(tmp_path) as (node, target):
            error = LmqError("left_cluster", "this node takes no more")
            node.service.refuse(error)
            assert await probe_all(LATE, target, node) == []
            # The shared error of the refusals keeps none of them alive.
            assert error.__traceback__ is None
            node.service.refuse(None)

    run(main())
