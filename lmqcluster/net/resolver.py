"""Looks up host names without blocking: a slow or silent name server delays no other work.

The C library's resolver blocks its thread until its own timeouts expire and cannot be cancelled. Therefore each look-up
runs in a daemon thread. There is at most one look-up for a name, their number is bounded, and callers wait only as long
as they choose. A look-up that no caller waits for continues, and its answer serves the next caller. The last addresses
of a name are kept and used while the name server does not answer.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

__all__ = [
    "LOOKUP_S",
    "PATIENCE_S",
    "RESOLVER",
    "Addresses",
    "Lookup",
    "Resolver",
    "SocketAddress",
    "copy_of",
    "is_unknown_host",
    "no_answer",
]

LOOKUP_S: Final = 8.0
"""How long a caller waits for a name by default. A look-up that takes longer continues, and its answer serves the next
caller.
"""
PATIENCE_S: Final = 0.25
"""How long a caller waits for newer addresses if old ones are known."""
LOOKUPS_MAX: Final = 64
"""Concurrent look-ups of a process. Further names are refused: all these threads already wait for a silent name server."""
KNOWN_MAX: Final = 1024
"""Names whose last addresses are kept; the least recently used is evicted."""
ADDRESSES_MAX: Final = 16
"""Addresses of one name that are used."""
_GONE: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""Errors of the resolver for a name that has no address, unlike one whose name server does not answer."""


class SocketAddress(NamedTuple):
    """An address of a host.

    Attributes:
        family: ``AF_INET`` or ``AF_INET6``.
        host: the numeric address.
        more: the fields that follow the port in a socket address of the family.
    """

    family: int
    host: str
    more: tuple[int, ...] = ()

    def at(self, port: int) -> tuple[Any, ...]:
        """Return the socket address for a port."""
        return (self.host, port, *self.more)


Addresses = tuple[SocketAddress, ...]


class NotResolvedError(socket.gaierror):
    """A name without an address, or a failure of its name server; the text omits the resolver's error number."""

    def __str__(self) -> str:
        return str(self.strerror)


class Lookup(NamedTuple):
    """A look-up, in progress or done.

    Attributes:
        host: the name.
        known: the last known addresses of the name, if any.
        answer: the addresses, or the error as a value; never an exception, because it might not be retrieved.
    """

    host: str
    known: Addresses
    answer: Future[Addresses | OSError]

    def wait_s(self, timeout_s: float) -> float:
        """Return how long a caller with `timeout_s` seconds waits for the answer."""
        return min(timeout_s, PATIENCE_S) if self.known else timeout_s

    def result(self, timeout_s: float) -> Addresses:
        """Return the answer, or the last known addresses if there is none yet.

        Raises:
            OSError: the name has no address, or no answer arrived within `timeout_s` (a `TimeoutError`).
        """
        answer = self.answer.result(0) if self.answer.done() else no_answer(self.host, timeout_s)
        if not isinstance(answer, OSError):
            return answer
        if self.known and not is_unknown_host(answer):
            return self.known
        raise copy_of(answer)


class Resolver:
    """Looks up names for a process. Thread-safe.

    Args:
        resolve: returns the addresses of a name in the form of `socket.getaddrinfo`; may block.
    """

    def __init__(self, resolve: Callable[[str], list[Any]] | None = None) -> None:
        self._resolve = resolve or _resolve
        self.forget()

    def forget(self) -> None:
        """Forget all addresses and look-ups: a forked process has none of the threads."""
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Addresses | OSError]] = {}
        self._known: OrderedDict[str, Addresses] = OrderedDict()

    def look_up(self, host: str) -> Lookup:
        """Start to look up a name, or join the look-up in progress; return at once. A numeric address needs no look-up."""
        literal = _literal(host)
        if literal:
            return Lookup(host, (), _done(literal))
        with self._lock:
            known = self._known.get(host, ())
            answer = self._under_way.get(host)
            if answer is None:
                if len(self._under_way) >= LOOKUPS_MAX:
                    text = (
                        f"cannot look up {host}: {LOOKUPS_MAX} other look-ups are still waiting for their name servers"
                    )
                    return Lookup(host, known, _done(OSError(text)))
                answer = Future()
                # A caller that stops waiting must not cancel the look-up for others.
                answer.set_running_or_notify_cancel()
                try:
                    threading.Thread(target=self._run, args=(host, answer), name="lmq-name", daemon=True).start()
                except RuntimeError as exc:
                    return Lookup(host, known, _done(OSError(f"cannot look up {host}: {exc}")))
                self._under_way[host] = answer
        return Lookup(host, known, answer)

    def _run(self, host: str, answer: Future[Addresses | OSError]) -> None:
        found: Addresses | OSError
        try:
            found = _addresses(self._resolve(host))
        except socket.gaierror as exc:
            found = NotResolvedError(exc.errno, f"cannot look up {host}: {exc.strerror}")
        except (OSError, ValueError) as exc:
            found = OSError(f"cannot look up {host}: {exc}")
        with self._lock:
            # Skipped if `forget` ran in between.
            if self._under_way.get(host) is answer:
                del self._under_way[host]
                self._keep(host, found)
        answer.set_result(found)

    def _keep(self, host: str, found: Addresses | OSError) -> None:
        if isinstance(found, socket.gaierror):
            if found.errno in _GONE:
                self._known.pop(host, None)
        elif not isinstance(found, OSError):
            self._known[host] = found
            self._known.move_to_end(host)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)


def no_answer(host: str, waited_s: float) -> TimeoutError:
    """Return the error for a caller whose look-up timed out."""
    return TimeoutError(f"cannot look up {host}: the name server did not answer within {waited_s:g} s")


def copy_of(error: OSError) -> OSError:
    """Return a copy of an error without frames. An error that is kept, or shared by callers, is never raised itself."""
    return type(error)(*error.args)


def is_unknown_host(error: OSError) -> bool:
    """Return whether the error says that the name has no address, so that its last known addresses are invalid."""
    return isinstance(error, socket.gaierror) and error.errno in _GONE


def _resolve(host: str) -> list[Any]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)


def _literal(host: str) -> Addresses:
    """Return the address of a numeric host, an empty tuple for a name. Never queries a name server."""
    try:
        return _addresses(
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST),
        )
    except (OSError, ValueError):
        return ()


def _addresses(found: list[Any]) -> Addresses:
    """Return the addresses in the resolver's order, alternating between the families as RFC 8305 requires."""
    each = list(dict.fromkeys(SocketAddress(family, where[0], tuple(where[2:])) for family, *_kind, where in found))
    first = [one for one in each if one.family == each[0].family]
    second = [one for one in each if one.family != each[0].family]
    in_turn = [one for pair in zip(first, second, strict=False) for one in pair]
    paired = min(len(first), len(second))
    return tuple([*in_turn, *first[paired:], *second[paired:]][:ADDRESSES_MAX])


def _done(value: Addresses | OSError) -> Future[Addresses | OSError]:
    answer: Future[Addresses | OSError] = Future()
    answer.set_result(value)
    return answer


RESOLVER: Final = Resolver()
"""The resolver of this process."""
os.register_at_fork(after_in_child=RESOLVER.forget)
