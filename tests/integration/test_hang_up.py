"""Clients that close their connection while their answers are made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.protocols.http.v1 import queues as v1_queues

from .guarded_node import guarded_node

DEADLINE_S = 120


def test_messages_return_when_the_client_closes_while_its_answer_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are ready at once, in order and without a charged retry, although their leases last for ten minutes."""

    async def main() -> None:
        reached = asyncio.Event()

        async def never(*_arguments: Any) -> None:
            reached.set()
            await asyncio.Event().wait()

        async with asyncio.timeout(DEADLINE_S), guarded_node(tmp_path, admin=None) as guarded:
            await guarded.ask("PATCH", "/v1/queues/q/properties", None, json={"timeout": 600, "retry": 1})
            body = {"messages": [{"content": text} for text in ("a", "b", "c")]}
            assert (await guarded.ask("POST", "/v1/queues/q/messages", None, json=body))[0] == 200
            with monkeypatch.context() as patch:
                patch.setattr(v1_queues, "reply_with_list", never)
                pull = asyncio.ensure_future(guarded.ask("POST", "/v1/queues/q/pull", None, json={"max": 3}))
                await reached.wait()
                pull.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await pull
                found = [(await guarded.node.service.pull(b"q", wait_s=DEADLINE_S))[0] for _ in range(3)]
            assert [(one.content, one.retry) for one in found] == [(b"a", 1), (b"b", 1), (b"c", 1)]

    asyncio.run(main())
