"""Looks up host names, for event loops and blocking callers, so that a name server that is slow or silent delays nothing else.

The C library's resolver blocks its thread, for as long as its own timeouts allow, and cannot be cancelled. So each look-up has a
daemon thread of its own, there is at most one for a name and a bounded number in all, and callers wait for it no longer than
they want to. A look-up that nobody waits for any more goes on, and its answer serves the next caller. The addresses that a
name had last are kept for the time in which the name server does not answer.
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
    "NAMES",
    "PATIENCE_S",
    "Addresses",
    "Lookup",
    "Names",
    "SocketAddress",
    "again",
    "is_gone",
    "no_answer",
]

LOOKUP_S: Final = 8.0
"""How long a caller waits for a name by default. A look-up that takes longer goes on, and the next caller gets its answer."""
PATIENCE_S: Final = 0.25
"""How long a name whose addresses are known waits for newer ones."""
LOOKUPS_MAX: Final = 64
"""Look-ups of a process at one time. Further names are refused: all these threads wait for a name server that is silent."""
KNOWN_MAX: Final = 1024
"""Names whose last addresses are kept; the one used longest ago makes room."""
ADDRESSES_MAX: Final = 16
"""Addresses of one name that are used."""
_GONE: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""What the resolver raises for a name that certainly has no address, unlike one whose name server does not answer."""


class SocketAddress(NamedTuple):
    """One address of a host.

    Attributes:
        family: ``AF_INET`` or ``AF_INET6``.
        host: the address in digits.
        more: what follows the port in an address of the family.
    """

    family: int
    host: str
    more: tuple[int, ...] = ()

    def at(self, port: int) -> tuple[Any, ...]:
        """The address with a port, as sockets take it."""
        return (self.host, port, *self.more)


Addresses = tuple[SocketAddress, ...]


class NotResolvedError(socket.gaierror):
    """A name has no address, or its name server fails; the text is for people, without the resolver's number."""

    def __str__(self) -> str:
        return str(self.strerror)


class Lookup(NamedTuple):
    """A look-up that is under way or done.

    Attributes:
        host: the name.
        known: the addresses that the name had last, if any.
        answer: gets the addresses, or why there are none; never an exception, which nobody might retrieve.
    """

    host: str
    known: Addresses
    answer: Future[Addresses | OSError]

    def wait_s(self, timeout_s: float) -> float:
        """How long a caller waits for the answer who has `timeout_s` seconds."""
        return min(timeout_s, PATIENCE_S) if self.known else timeout_s

    def result(self, timeout_s: float) -> Addresses:
        """What a caller gets who waits no longer: the addresses of the name, or those that it had last.

        Raises:
            OSError: the name has none, or no answer came within so many seconds (a `TimeoutError`).
        """
        answer = self.answer.result(0) if self.answer.done() else no_answer(self.host, timeout_s)
        if not isinstance(answer, OSError):
            return answer
        if self.known and not is_gone(answer):
            return self.known
        raise again(answer)


class Names:
    """Looks up names for a process. Thread-safe.

    Args:
        resolve: returns the addresses of a name, as `socket.getaddrinfo` of this name does; may block.
    """

    def __init__(self, resolve: Callable[[str], list[Any]] | None = None) -> None:
        self._resolve = resolve or _resolve
        self.forget()

    def forget(self) -> None:
        """Know nothing, and wait for no look-up any more: a process that was forked has none of the threads."""
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Addresses | OSError]] = {}
        self._known: OrderedDict[str, Addresses] = OrderedDict()

    def look_up(self, host: str) -> Lookup:
        """Begin to look up a name, or join the look-up under way; returns at once. An address in digits is its own answer."""
        literal = _literal(host)
        if literal:
            return Lookup(host, (), _done(literal))
        with self._lock:
            known = self._known.get(host, ())
            answer = self._under_way.get(host)
            if answer is None:
                if len(self._under_way) >= LOOKUPS_MAX:
                    text = f"cannot look up {host}: {LOOKUPS_MAX} look-ups of other names have no answer yet"
                    return Lookup(host, known, _done(OSError(text)))
                answer = Future()
                # Nobody who gives up waiting for it cancels it for the others.
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
            # Unless all was forgotten meanwhile.
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
    """The error for a caller that has waited in vain for a name."""
    return TimeoutError(f"cannot look up {host}: the name server did not answer within {waited_s:g} s")


def again(error: OSError) -> OSError:
    """Return an error that says the same and keeps no frames; one that stays, or that several callers get, is never raised."""
    return type(error)(*error.args)


def is_gone(error: OSError) -> bool:
    """Whether a look-up has failed because the name has no address, so that those that it had are of no use."""
    return isinstance(error, socket.gaierror) and error.errno in _GONE


def _resolve(host: str) -> list[Any]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)


def _literal(host: str) -> Addresses:
    """The address of a host in digits; nothing for a name. Asks nobody."""
    try:
        return _addresses(
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST),
        )
    except (OSError, ValueError):
        return ()


def _addresses(found: list[Any]) -> Addresses:
    """The addresses that the resolver has found, in its order but with the families in turn, as RFC 8305 asks."""
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


NAMES: Final = Names()
"""Those of this process."""
os.register_at_fork(after_in_child=NAMES.forget)
