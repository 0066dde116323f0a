"""Settlements that a client retries after their callers have timed out or were cancelled.

A delivery without a settlement stays leased as long as its session is renewed. So the client repeats acks, nacks and the like,
also within a transaction, until their outcome is known, although the caller waits only for ``timeout_s``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from functools import partial
from typing import Any

from lmqcluster.wire.errors import LmqError

from .calls import Call, Persistence, Settlement

__all__ = ["KeptSettlements"]

logger = logging.getLogger("lmqcluster.client")

_ATTEMPT_S = 30.0
"""Minimum time in seconds after which an attempt counts as lost, so that a short ``timeout_s`` cannot end every attempt."""
_OUTCOMES = frozenset({"lease_lost", "unknown_outcome"})
"""Errors of a delivery that has ended; ``unknown_outcome`` if the cluster no longer knows how."""
_LOGGED_EVERY = 1_000


class KeptSettlements:
    """Settlements in retry, see the module. Bound to the event loop of its session.

    Attributes:
        asked: digests of recent requests that were kept. A caller that sends an equal request repeats that one.
        given_up: number of settlements that ended without a known outcome, or failed after their caller had stopped waiting.
    """

    COUNT_MAX = 65_536
    BYTES_MAX = 64 * 1024 * 1024

    def __init__(self, timeout_s: float) -> None:
        self.asked: dict[bytes, None] = {}
        self.given_up = 0
        self._attempt_s = max(timeout_s, _ATTEMPT_S)
        self._calls: dict[Settlement, int] = {}  # with their sizes in bytes, oldest first
        self._bytes = 0

    def join(self, call: Settlement) -> None:
        """Turn a call into a repetition if an equal one was kept, so that it gets the outcome of that one."""
        if call.ends and _digest(call.repetition()) in self.asked:
            call.ask_again()

    def keep(self, call: Call, now: float, error: LmqError | None = None) -> bool:
        """Keep retrying a call after its deadline, if it is a settlement.

        Args:
            call: any call; one that settles nothing is not kept.
            now: loop time in seconds.
            error: why the call failed; None if its caller was cancelled.

        Returns:
            Whether the client keeps retrying. If so, the caller has received an error, unless it waits for the outcome.
        """
        if not isinstance(call, Settlement) or not call.ends or call.persistence is Persistence.WHILE_AWAITED:
            return False
        call.deadline = now + self._attempt_s
        if call in self._calls or (call.persistence is Persistence.UNTIL_KNOWN and not call.future.done()):
            return True
        if error is not None:
            text = f"{error.message}; the client goes on with the settlement until it knows the outcome"
            call.fail(LmqError("unknown_outcome", text))
        call.future = asyncio.get_running_loop().create_future()
        call.future.add_done_callback(partial(self._ended, call))
        self._add(call)
        return True

    def _add(self, call: Settlement) -> None:
        repetition = call.repetition()
        self._calls[call] = len(repetition)
        self._bytes += len(repetition)
        digest = _digest(repetition)
        self.asked.pop(digest, None)
        self.asked[digest] = None
        while len(self.asked) > self.COUNT_MAX:
            del self.asked[next(iter(self.asked))]
        while len(self._calls) > self.COUNT_MAX or (self._bytes > self.BYTES_MAX and len(self._calls) > 1):
            self._give_up(next(iter(self._calls)), "too many of them wait for an answer")

    def _ended(self, call: Settlement, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        size = self._calls.pop(call, None)
        if size is None:
            return
        self._bytes -= size
        if error is None:
            if isinstance(results := future.result(), bool):
                results = [results]
            if ended := results.count(False):
                logger.warning("%d deliveries had ended before they were settled: their messages come again", ended)
        elif isinstance(error, LmqError) and error.code in _OUTCOMES:
            logger.warning("a delivery had ended before it was settled: %s", error)
        else:
            self._count(1, str(error))

    def _give_up(self, call: Settlement, reason: str) -> None:
        self._bytes -= self._calls.pop(call)
        self._count(1, reason)
        call.fail(LmqError("unknown_outcome", reason))

    def give_up_all(self) -> None:
        """Stop retrying and fail all calls."""
        count = len(self._calls)
        for call in list(self._calls):
            self._bytes -= self._calls.pop(call)
            call.fail(LmqError("unknown_outcome", "the client was closed"))
        if count:
            self._count(count, "the client was closed")

    def _count(self, count: int, reason: str) -> None:
        before, self.given_up = self.given_up, self.given_up + count
        if before == 0 or before // _LOGGED_EVERY < self.given_up // _LOGGED_EVERY:
            logger.warning(
                "%d settlements were given up, %d in all: their messages come again when their leases have ended: %s",
                count,
                self.given_up,
                reason,
            )


def _digest(repetition: bytes) -> bytes:
    return hashlib.blake2b(repetition, digest_size=16).digest()
