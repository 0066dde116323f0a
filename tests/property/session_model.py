"""The naive model of sessions, exclusive queues, locks, and waiting pushes: lists that are searched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .rich_model import FULL, REFUSED, Queue, RichModel
from .rich_rules import DEFAULTS

NEVER_US = 1 << 62
PLAIN = [-1, 0, 0, 0, b"", b""]


@dataclass(eq=False)
class ClientSession:
    """A session that is alive."""

    number: int
    ttl_us: int
    ends_us: int
    leases: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(eq=False)
class WaitingPush:
    """A waiting push."""

    ticket: int
    queue: bytes
    rows: list[Any]
    ends_us: int
    waiters: int = 1

    def key(self) -> tuple[bytes, bytes] | None:
        keys = [row[3] for row in self.rows if row[3] is not None]
        return (self.queue, keys[0]) if keys else None

    def same(self, rows: list[Any]) -> bool:
        mine, others = ([[*row[:4], row[4] or PLAIN] for row in one] for one in (self.rows, rows))
        return mine == others


class SessionModel(RichModel):
    """All queues, and their wait lists."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[int, ClientSession] = {}
        self.opened = 0
        # Places in the order in which they were taken: (name, session).
        self.claims: list[tuple[bytes, int]] = []
        self.locks: list[tuple[bytes, int]] = []
        self.tokens: dict[bytes, int] = {}
        self.tokens_given = 0
        self.waits: list[WaitingPush] = []
        self.tickets = 0
        self.notices: list[Any] = []
        self.is_serving = False

    def advance(self, now_us: int) -> None:
        self.notices = []
        super().advance(now_us)
        for session in sorted(self.sessions.values(), key=lambda one: (one.ends_us, one.number)):
            if session.ends_us <= self.now_us:
                self.close(session)
        for wait in sorted(self.waits, key=lambda one: (one.ends_us, one.ticket)):
            if wait.ends_us <= self.now_us:
                self.refuse(wait)

    # --- sessions -------------------------------------------------------------------------------------------------

    def open_session(self, ttl_us: int) -> int:
        self.opened += 1
        self.sessions[self.opened] = ClientSession(self.opened, ttl_us, self.now_us + ttl_us)
        return self.opened

    def renew(self, number: int) -> bool:
        session = self.sessions.get(number)
        if session is not None:
            session.ends_us = self.now_us + session.ttl_us
        return session is not None

    def end_session(self, number: int) -> bool:
        session = self.sessions.get(number)
        if session is not None:
            self.close(session)
        return session is not None

    def close(self, session: ClientSession) -> None:
        self.release(session, [name for _, name in session.leases])
        for name, number in list(self.claims):
            if number == session.number:
                self.claims.remove((name, number))
        for name, number in list(self.locks):
            if number == session.number:
                self.free(name, number)
        del self.sessions[session.number]
        self.notices.append(("ended", session.number))

    def release(self, session: ClientSession, names: list[bytes]) -> None:
        """End the session's leases of these queues, queue by queue."""
        for name in dict.fromkeys(names):
            for number, _ in [one for one in session.leases if one[1] == name]:
                entry = self.leased(name, number) if name in self.queues else None
                if entry is None:
                    continue
                if entry.remaining <= 0:
                    self.exhaust(name, entry)
                else:
                    self.queues[name].add("redelivered")
                    self.come_back(name, entry, entry.ready_us)
            session.leases = [one for one in session.leases if one[1] != name]

    def pull_in_session(self, name: bytes, count: int, lease_us: int, number: int, charge: int, known: int) -> Any:
        session = self.sessions.get(number)
        if session is None:
            return REFUSED
        queue = self.named(name)
        if self.value(queue, "exclusive"):
            if (name, number) not in self.claims:
                self.claims.append((name, number))
            if self.line(self.claims, name)[0] != number:
                return []
        lease_us = lease_us or self.us(queue, "open_transaction_timeout", NEVER_US)
        lost = [one[0] for one in session.leases if one[1] == name and one[0] > known] if known >= 0 else []
        if again := [entry for one in lost if (entry := self.leased(name, one)) is not None][:count]:
            for entry in again:
                entry.due_us = max(entry.due_us, self.now_us + lease_us)
            return self.shown(name, again)
        delivered = self.pull(name, count, lease_us, charge=charge, in_turn=True)
        session.leases += [(one[1], name) for one in delivered]
        return delivered

    def leave_queue(self, name: bytes, number: int) -> Any:
        session = self.sessions.get(number)
        if session is None:
            return REFUSED
        self.release(session, [name])
        found = (name, number) in self.claims
        self.claims = [one for one in self.claims if one != (name, number)]
        return found

    def line(self, places: list[tuple[bytes, int]], name: bytes) -> list[int]:
        return [number for one, number in places if one == name]

    def lock(self, name: bytes, number: int, waits: bool) -> Any:
        if number not in self.sessions:
            return REFUSED
        line = self.line(self.locks, name)
        if number not in line:
            if line and not waits:
                return 0
            self.locks.append((name, number))
            line.append(number)
        if line[0] != number:
            return 0
        if name not in self.tokens:
            self.tokens_given += 1
            self.tokens[name] = self.tokens_given
        return self.tokens[name]

    def unlock(self, name: bytes, number: int) -> Any:
        return self.free(name, number) if number in self.sessions else REFUSED

    def free(self, name: bytes, number: int) -> bool:
        line = self.line(self.locks, name)
        if number not in line:
            return False
        self.locks.remove((name, number))
        if line[0] == number:
            del self.tokens[name]
            if len(line) > 1:
                self.tokens_given += 1
                self.tokens[name] = self.tokens_given
                self.notices.append(("granted", name, line[1], self.tokens_given))
        return True

    # --- waiting pushes -----------------------------------------------------------------------------------------------

    def refusal(self, name: bytes, body: bytes) -> int:
        queue = self.queues[name]
        largest = self.value(queue, "max_item_size")
        is_oversized = largest is not None and len(body) > largest
        has_options = bool(queue.own.keys() - DEFAULTS.keys())
        if has_options and not is_oversized and not self.is_serving and any(w.queue == name for w in self.waits):
            queue.add("refused")
            return FULL
        return super().refusal(name, body)

    def push_rows(
        self,
        name: bytes,
        rows: list[Any],
        owner: bytes = b"",
        producer: bytes | None = None,
        first: int = 0,
        must_exist: bool = False,
        wait_us: int = 0,
    ) -> Any:
        assert not must_exist
        if not wait_us:
            return super().push_rows(name, rows, owner, producer, first)
        queue = self.named(name)
        wait = WaitingPush(self.tickets + 1, name, rows, self.now_us + wait_us)
        before = [one for one in self.waits if one.key() is not None and one.key() == wait.key()]
        if before and (before[-1].same(rows) or self.value(queue, "key_window") is None):
            if not before[-1].same(rows):
                return REFUSED
            before[-1].waiters += 1
            return "waits", before[-1].ticket
        result = self.try_rows(name, rows)
        queue = self.queues[name]
        if isinstance(result, list):
            return result
        if result == FULL and not self.value(queue, "destination_queues"):
            self.tickets += 1
            self.waits.append(wait)
            return "waits", wait.ticket
        queue.add("refused", result is not None)
        return REFUSED

    def cancel_push(self, ticket: int) -> bool:
        found = [wait for wait in self.waits if wait.ticket == ticket]
        if found:
            found[0].waiters -= 1
            if not found[0].waiters:
                self.refuse(found[0])
        return bool(found)

    def refuse(self, wait: WaitingPush) -> None:
        self.waits.remove(wait)
        if wait.queue in self.queues:
            self.queues[wait.queue].add("refused")
        self.notices.append(("pushed", wait.ticket, REFUSED))

    def delete(self, name: bytes) -> bool:
        found = super().delete(name)
        for wait in [one for one in self.waits if one.queue == name]:
            self.refuse(wait)
        return found

    def serve(self) -> None:
        """After a batch, store pushes that have room, queue by queue, and stop at the first one that must wait."""
        for name in sorted({wait.queue for wait in self.waits}):
            for wait in [one for one in self.waits if one.queue == name]:
                self.is_serving = True
                result = self.try_rows(name, wait.rows)
                self.is_serving = False
                queue: Queue = self.queues[name]
                if result == FULL and not self.value(queue, "destination_queues"):
                    break
                self.waits = [one for one in self.waits if one.ticket != wait.ticket]
                queue.add("refused", isinstance(result, int))
                self.notices.append(("pushed", wait.ticket, result if isinstance(result, list) else REFUSED))
