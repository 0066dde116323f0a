"""Connects to the addresses of a name, one after another with a short stagger, until the first connection succeeds.

Follows RFC 8305 (Happy Eyeballs): a silent address delays the next one by `STAGGER_S` only, a refusing one not at all.
An address that refused is retried while others are silent, because its server may be starting. While a look-up is in
progress, the last known addresses are tried.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from types import TracebackType
from typing import Final, Self

from .resolver import PATIENCE_S, Addresses, Lookup, SocketAddress, copy_of, is_unknown_host, no_answer

__all__ = ["STAGGER_S", "Race"]

STAGGER_S: Final = 0.25
AGAIN_S: Final = 0.5
"""Delay before an address that refused is retried, while others are silent."""
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR})


class Race:
    """Concurrent connections to the addresses of a name; the first to succeed wins, the others are closed on exit.

    Times are in seconds of the monotonic clock. The caller waits for `wait_s` and calls `winner` again.
    """

    def __init__(self, lookup: Lookup, port: int, timeout_s: float, lookup_s: float, attempt: int) -> None:
        self.lookup = lookup
        self._port = port
        self._timeout_s = timeout_s
        self._lookup_s = lookup_s
        self._attempt = attempt
        self._begun = time.monotonic()
        self._first_at: float | None = None
        self._next_at = self._begun
        self._is_answered = False
        self._waiting: deque[SocketAddress] = deque()
        self._tried: dict[SocketAddress, None] = {}
        self._open: dict[int, tuple[socket.socket, SocketAddress]] = {}
        self._failed: list[SocketAddress] = []
        self._again_at = self._begun
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, _address in self._open.values():
            one.close()

    def numbers(self) -> set[int]:
        """Return the descriptors that become writable when their connection succeeds or fails."""
        return set(self._open)

    def winner(self, now: float) -> socket.socket | None:
        """Return the first connection that succeeded; None if none has yet.

        Raises:
            OSError: no connection can succeed any more.
        """
        for number in self._settled():
            one, address = self._open.pop(number)
            failure = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not failure:
                return one
            one.close()
            self._note_failure(address, failure, now)
            self._next_at = now
        self._take_addresses(now)
        if self._failed and self._open and not self._waiting and now >= self._again_at:
            self._waiting.extend(self._failed)
            self._failed = []
        while self._waiting and now >= self._next_at:
            winner = self._begin(self._waiting.popleft(), now)
            if winner is not None:
                return winner
        self._raise_if_over(now)
        return None

    def wait_s(self, now: float) -> float:
        """Return how long to wait until there is more to do, unless a descriptor becomes writable before."""
        ends = [self._begun + self._lookup_s] if self._first_at is None else [self._first_at + self._timeout_s]
        if self._waiting:
            ends.append(self._next_at)
        elif self._failed and self._open:
            ends.append(self._again_at)
        if self.lookup.known and not self._is_answered and self._first_at is None:
            ends.append(self._begun + PATIENCE_S)
        return max(0.0, min(ends) - now)

    def _settled(self) -> list[int]:
        """Return the descriptors whose connection has succeeded or failed."""
        if not self._open:
            return []
        poll = select.poll()
        for number in self._open:
            poll.register(number, select.POLLOUT)
        return [number for number, _event in poll.poll(0)]

    def _take_addresses(self, now: float) -> None:
        if not self._is_answered and self.lookup.answer.done():
            self._is_answered = True
            answer = self.lookup.answer.result(0)
            if not isinstance(answer, OSError):
                self._offer(answer, now)
            elif self.lookup.known and not is_unknown_host(answer):
                self._offer(self.lookup.known, now)
            else:
                self._error = self._error or answer
        elif not self._is_answered and self.lookup.known and now >= self._begun + PATIENCE_S:
            self._offer(self.lookup.known, now)

    def _offer(self, addresses: Addresses, now: float) -> None:
        """Add addresses that have not been tried; the newest go first."""
        turn = self._attempt % len(addresses) if addresses else 0
        fresh = [one for one in (*addresses[turn:], *addresses[:turn]) if one not in self._tried]
        if fresh:
            self._first_at = now
            self._waiting = deque(fresh)

    def _begin(self, address: SocketAddress, now: float) -> socket.socket | None:
        self._tried[address] = None
        try:
            one = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as exc:
            self._error = self._error or copy_of(exc)
            return None
        try:
            one.setblocking(False)
            outcome = one.connect_ex(address.at(self._port))
        except (OSError, OverflowError) as exc:
            one.close()
            # The port is invalid, or the network is unreachable.
            self._error = self._error or (copy_of(exc) if isinstance(exc, OSError) else OSError(str(exc)))
            return None
        if outcome == 0:
            return one
        if outcome in _UNDER_WAY:
            self._open[one.fileno()] = one, address
            self._next_at = now + STAGGER_S
        else:
            one.close()
            self._note_failure(address, outcome, now)
        return None

    def _note_failure(self, address: SocketAddress, number: int, now: float) -> None:
        self._error = self._error or OSError(number, os.strerror(number))
        self._failed.append(address)
        self._again_at = now + AGAIN_S

    def _why_none(self) -> OSError:
        return OSError(f"{self.lookup.host} has no address") if self._error is None else copy_of(self._error)

    def _raise_if_over(self, now: float) -> None:
        if self._first_at is None:
            if self._is_answered:
                raise self._why_none()
            if now >= self._begun + self._lookup_s:
                raise no_answer(self.lookup.host, self._lookup_s)
        elif not self._open and not self._waiting and self._is_answered:
            raise self._why_none()
        elif now >= self._first_at + self._timeout_s:
            if self._error is not None and not self._open:
                raise copy_of(self._error)
            tried = ", ".join(one.host for one in self._tried)
            where = "" if tried == self.lookup.host else f" ({tried})"
            raise TimeoutError(f"{self.lookup.host}{where} did not answer within {self._timeout_s:g} s")
