"""Open reads with a timeout."""

from __future__ import annotations

from collections import Counter

import pytest

from lmqcluster.node.queues.node_session import TTL_S, NodeSession
from lmqcluster.node.queues.open_reads import timed as timed_reads
from lmqcluster.node.queues.open_reads.open_reads import OpenReads
from lmqcluster.node.queues.open_reads.timed import TimedReads
from lmqcluster.testing.node import MemoryNode
from lmqcluster.wire.errors import LmqError

from .test_sessions import bodies, push, run


def test_they_return_in_order_at_their_timeout_and_not_before() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        timed, counts = TimedReads(reads), Counter[bytes]()
        await push(node, b"q", b"1", b"2", b"3", b"4")
        late = await reads.open(b"q")
        timed.begin(b"q", late, 8, counts)
        soon = await reads.open(b"q", count=3)
        timed.begin(b"q", soon, 3, counts)
        assert counts == {b"q": 4}
        assert await timed.confirm(b"q", [soon[1].id]) == 1
        await node.advance(2.9)
        assert await reads.open(b"q") == []
        await node.advance(0.2)
        assert counts == {b"q": 1}
        assert await timed.confirm(b"q", [soon[0].id, soon[2].id]) == 0
        assert bodies(await node.service.pull(b"q", count=10)) == [b"2", b"4"]
        assert await timed.abort(b"q", [late[0].id]) == 1
        assert (len(timed), dict(counts)) == (0, {})
        # Nothing is left to do at the timeout of the aborted one.
        taken = await node.service.pull(b"q")
        await node.advance(10)
        assert await node.service.ack(b"q", [taken[0].id]) == [True]
        session.close()

    run(main)


def test_settled_reads_leave_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_reads, "TIMED_READS_MAX", 3)

    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        timed, counts = TimedReads(reads), Counter[bytes]()
        for _ in range(2_000):
            timed.check_room()
            await push(node, b"q", b"x")
            found = await reads.open(b"q")
            timed.begin(b"q", found, 1_000_000, counts)
            assert await timed.confirm(b"q", [found[0].id]) == 1
        assert len(timed._ends) <= 1_001
        await push(node, b"q", b"1", b"2", b"3")
        timed.begin(b"q", await reads.open(b"q", count=3), 1_000_000, counts)
        with pytest.raises(LmqError, match="3 reads are open"):
            timed.check_room()
        timed.close()
        assert (len(timed), dict(counts)) == (0, {})
        session.close()

    run(main)


def test_a_node_whose_session_expired_forgets_them() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        timed, counts = TimedReads(reads), Counter[bytes]()
        await push(node, b"q", b"1")
        found = await reads.open(b"q")
        timed.begin(b"q", found, 30, counts)
        assert session._renewing is not None
        session._renewing.cancel()
        await node.advance(TTL_S)
        assert (len(timed), dict(counts)) == (0, {})
        assert await timed.confirm(b"q", [found[0].id]) == 0
        session.close()

    run(main)
