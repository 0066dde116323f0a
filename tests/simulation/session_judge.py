"""Invariants of sessions, exclusive queues, locks and waiting pushes in log order.

As in `queue_judge`, each result is judged once by the effects of the commands before it. Notices to waiting clients are
judged with their batch: a lock is handed over, a session ends, and a push is stored or refused exactly when that is
due.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

from lmqcluster.core import Fault, Op
from lmqcluster.core.handlers.waiting_pushes import Waits
from lmqcluster.core.log.notices import Ended, Granted, Pushed
from lmqcluster.core.messages.message import loaded
from tests.simulation.node_clients import look_at_bodies
from tests.simulation.session_book import Held, Lines, Messages, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmqcluster.core import Applied, Machine
    from tests.simulation.checkers import Checkers

__all__ = ["HELD", "LOCKS", "NARROW", "SESSION_QUEUES", "TURN", "SessionJudge"]

RETRIES = 1_000_000
ROOM = 3
HELD, TURN, NARROW = b"held", b"turn", b"narrow"
SESSION_QUEUES: dict[bytes, list[list[Any]]] = {
    HELD: [[b"retry", RETRIES]],
    TURN: [[b"exclusive", True], [b"retry", RETRIES]],
    NARROW: [[b"max_items", ROOM], [b"retry", RETRIES]],
}
"""By name, the properties."""
LOCKS = (b"lock one", b"lock two")


class _Waiting(NamedTuple):
    ticket: int
    ends_us: int
    contents: list[bytes]


class SessionJudge:
    """Follows all sessions, and the queues and locks named here; reports contradictions."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self._ops: dict[int, Callable[..., None]] = {
            Op.OPEN_SESSION: self._opened,
            Op.RENEW_SESSION: self._renewed,
            Op.END_SESSION: self._ended,
            Op.LOCK: self._locked,
            Op.UNLOCK: self._unlocked,
            Op.CANCEL_PUSH: self._cancelled,
        }
        self._queue_ops: dict[int, Callable[..., None]] = {
            Op.SET_PROPERTIES: self._set,
            Op.PUSH_ROWS: self._pushed,
            Op.PULL_IN_SESSION: self._pulled,
            Op.PULL: self._pulled_and_settled,
            Op.ACK: self._settled,
            Op.NACK: self._given_back,
            Op.LEAVE_QUEUE: self._left,
        }
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self._index = self._now_us = self._last_token = 0
        self._sessions: dict[int, Session] = {}
        self._messages = Messages()
        self._claims, self._locks = Lines(), Lines()
        self._tokens: dict[bytes, int] = {}
        self._properties: dict[bytes, dict[bytes, Any]] = {}
        self._waiting: list[_Waiting] = []
        self._results: dict[bytes, Any] = {}
        self._refused: set[bytes] = set()

    def _report(self, kind: str, detail: Any) -> None:
        self._checkers.report(kind, f"{detail}, log time {self._now_us}")

    # --- answers to clients -------------------------------------------------------------------------------------------

    def answered(self, content: bytes, result: Any) -> None:
        """Note that a client has the first answer to a push that may wait."""
        if content not in self._results or self._results[content] != result:
            self._report("answer not in the log", f"{content!r}: {result}, not {self._results.get(content)}")

    def refused(self, content: bytes) -> None:
        """Note that a client's push was refused: it was not and will never be applied."""
        self._refused.add(content)

    # --- the log --------------------------------------------------------------------------------------------------

    def applied(self, index: int, now_us: int, commands: list[Any], applied: Applied) -> None:
        """Judge an entry that a replica has applied; only the first replica counts."""
        notices = applied.notices
        if index <= self._index:
            return
        look_at_bodies(applied.results)
        self._index = index
        self._now_us = max(self._now_us, now_us)
        self._grants = collections.deque(one for one in notices if isinstance(one, Granted) and one.name in LOCKS)
        self._ends: list[int] = []
        self._given_up: set[int] = set()
        self._let_time_pass()
        for command, result in zip(commands, applied.results, strict=False):
            if (judge := self._ops.get(command[0])) is not None:
                judge(command[1:], result)
            elif (judge := self._queue_ops.get(command[0])) is not None and command[1] in SESSION_QUEUES:
                judge(command[1], command[2:], result)
        self._check_notices(notices, self._serve() if applied.status == "applied" else [])

    def _let_time_pass(self) -> None:
        over = [one for one in self._sessions.values() if one.ends_us <= self._now_us]
        for session in sorted(over, key=lambda one: (one.ends_us, one.number)):
            self._end(session)
        self._give_up({one.ticket for one in self._waiting if one.ends_us <= self._now_us})

    def _check_notices(self, notices: Sequence[object], served: list[int]) -> None:
        if self._grants:
            self._report("lock handed on without cause", list(self._grants))
        ends = [one.session for one in notices if isinstance(one, Ended)]
        if ends != self._ends:
            self._report("session ended at the wrong time", f"{ends}, not {self._ends}")
        outcomes = [one for one in notices if isinstance(one, Pushed) and one.queue == NARROW]
        refused = {one.ticket for one in outcomes if isinstance(one.result, Fault)}
        if refused != self._given_up:
            self._report("push refused at the wrong time", f"{refused}, not {self._given_up}")
        stored = [one.ticket for one in outcomes if one.ticket not in refused]
        if stored != sorted(stored):
            self._report("waiting pushes out of order", stored)
        elif stored != served:
            self._report(
                "bound exceeded" if len(stored) > len(served) else "waiting push not stored", f"{stored}, not {served}"
            )

    # --- sessions -------------------------------------------------------------------------------------------------

    def _live(self, number: int, result: Any) -> Session | None:
        """Return the session if it is alive; nothing may be done for an ended one."""
        session = self._sessions.get(number)
        if session is None and not (isinstance(result, Fault) and result.code == "session_lost"):
            self._report("served after its session", f"session {number}: {result}")
        if session is not None and isinstance(result, Fault):
            self._report("refused without cause", f"session {number}: {result}")
            return None
        return session

    def _expect(self, kind: str, result: Any, expected: Any) -> None:
        if result != expected:
            self._report(f"wrong result: {kind}", f"{result}, not {expected}")

    def _opened(self, arguments: list[Any], number: int) -> None:
        if number in self._sessions:
            self._report("session twice", number)
        self._sessions[number] = Session(number, arguments[0], self._now_us + arguments[0])

    def _renewed(self, arguments: list[Any], result: Any) -> None:
        session = self._sessions.get(arguments[0])
        self._expect("renewed", result, session is not None)
        if session is not None:
            session.ends_us = self._now_us + session.ttl_us

    def _ended(self, arguments: list[Any], result: Any) -> None:
        session = self._sessions.get(arguments[0])
        self._expect("ended", result, session is not None)
        if session is not None:
            self._end(session)

    def _end(self, session: Session) -> None:
        del self._sessions[session.number]
        self._ends.append(session.number)
        for delivery in session.deliveries:
            if delivery in self._messages.held:
                self._messages.come_back(delivery)
        for name in self._claims.of(session.number):
            self._claims.leave(name, session.number)
        for name in self._locks.of(session.number):
            self._leave_lock(name, session.number)

    # --- deliveries -----------------------------------------------------------------------------------------------

    def _pulled(self, queue: bytes, arguments: list[Any], result: Any) -> None:
        session = self._live(arguments[2], result)
        if session is None:
            return
        if self._properties.get(queue, {}).get(b"exclusive"):
            self._claims.join(queue, session.number)
            if self._claims.holder(queue) != session.number:
                if result:
                    detail = f"{session.number}, and {self._claims.holder(queue)} has it"
                    self._report("two at an exclusive queue", detail)
                return
        if lost := self._lost(session, queue, arguments[4])[: arguments[0]]:
            self._expect("lost deliveries", [one[1] for one in result], lost)
            return
        for delivery, arrival, content in self._delivered(queue, arguments[0], result or []):
            session.deliveries.append(delivery)
            self._messages.held[delivery] = Held(queue, arrival, content)

    def _lost(self, session: Session, queue: bytes, known: int) -> list[int]:
        """Return the deliveries of a queue that the session holds and that its client has not received."""
        if known < 0:
            return []
        held = [(one, self._messages.held.get(one)) for one in session.deliveries if one > known]
        return [delivery for delivery, one in held if one is not None and one.queue == queue]

    def _pulled_and_settled(self, queue: bytes, arguments: list[Any], result: Any) -> None:
        self._delivered(queue, arguments[0], result or [])

    def _delivered(self, queue: bytes, count: int, result: list[Any]) -> list[tuple[int, int, bytes]]:
        """Remove messages from the head of the queue and return their delivery number, arrival and content."""
        line = self._messages.line(queue)
        expected = [content for _, content in line[:count]]
        contents = [loaded(message.content) for _queue, _delivery, _remaining, message in result]
        if contents != expected:
            self._report("session out of order", f"{queue!r}: {contents}, not {expected}")
            return []
        taken, line[:count] = line[:count], []
        return [(one[1], *place) for one, place in zip(result, taken, strict=True)]

    def _settled(self, queue: bytes, arguments: list[Any], result: list[bool]) -> None:
        for delivery, settled in zip(arguments[0], result, strict=True):
            if settled and delivery not in self._messages.held:
                self._report("confirmed though lost", delivery)
            elif not settled and delivery in self._messages.held:
                self._report("lost before the end of its session", delivery)
            self._messages.held.pop(delivery, None)

    def _given_back(self, queue: bytes, arguments: list[Any], result: list[bool]) -> None:
        for delivery, settled in zip(arguments[0], result, strict=True):
            self._expect("given back", settled, delivery in self._messages.held)
            if delivery in self._messages.held:
                self._messages.come_back(delivery)

    def _left(self, queue: bytes, arguments: list[Any], result: Any) -> None:
        session = self._live(arguments[0], result)
        if session is None:
            return
        for delivery in session.deliveries:
            held = self._messages.held.get(delivery)
            if held is not None and held.queue == queue:
                self._messages.come_back(delivery)
        self._expect("left", result, queue in self._claims.of(session.number))
        self._claims.leave(queue, session.number)

    # --- locks ----------------------------------------------------------------------------------------------------

    def _locked(self, arguments: list[Any], token: Any) -> None:
        name, number, waits = arguments[:3]
        if self._live(number, token) is None:
            return
        holder = self._locks.holder(name)
        if holder in (0, number) or waits:
            self._locks.join(name, number)
        if holder not in (0, number):
            if token:
                self._report("two holders of a lock", f"{name!r}: {holder} and {number}")
        elif holder == number:
            self._expect("token", token, self._tokens[name])
        else:
            self._granted(name, token)

    def _unlocked(self, arguments: list[Any], result: Any) -> None:
        name, number = arguments[:2]
        if self._live(number, result) is not None:
            self._expect("unlocked", result, name in self._locks.of(number))
            self._leave_lock(name, number)

    def _leave_lock(self, name: bytes, number: int) -> None:
        successor = self._locks.leave(name, number)
        if not successor:
            return
        grant = self._grants.popleft() if self._grants else None
        if grant is None or (grant.name, grant.session) != (name, successor):
            self._report("lock not handed on", f"{name!r} to {successor}: {grant}")
        else:
            self._granted(name, grant.token)

    def _granted(self, name: bytes, token: int) -> None:
        if token <= self._last_token:
            self._report("token not larger", f"{token} after {self._last_token}")
        self._tokens[name] = self._last_token = token

    # --- pushes ---------------------------------------------------------------------------------------------------

    def _set(self, queue: bytes, arguments: list[Any], result: Any) -> None:
        self._properties[queue] = dict(arguments[0])

    def _pushed(self, queue: bytes, arguments: list[Any], result: Any) -> None:
        if any(arguments[5:]):
            self._pushed_or_waits(queue, arguments, result)
            return
        if isinstance(result, Fault):
            self._report("refused without cause", f"{queue!r}: {result}")
            return
        for row in arguments[0]:
            self._messages.push(queue, row[0])

    def _pushed_or_waits(self, queue: bytes, arguments: list[Any], result: Any) -> None:
        contents = [row[0] for row in arguments[0]]
        if contents[0] in self._results:
            self._report("applied twice", contents[0])
        self._results[contents[0]] = result
        waits = bool(self._waiting) or not self._fits(contents)
        if isinstance(result, Fault):
            self._report("refused without cause", f"{queue!r}: {result}")
        elif isinstance(result, Waits):
            if not waits:
                self._report("waits though there is room", result)
            self._waiting.append(_Waiting(result.ticket, self._now_us + arguments[5], contents))
        else:
            if waits:
                self._report("bound exceeded", f"{contents[0]!r} passed {len(self._waiting)} that wait")
            self._store(contents)

    def _fits(self, contents: list[bytes]) -> bool:
        most = self._properties.get(NARROW, {}).get(b"max_items")
        return most is None or len(self._messages.line(NARROW)) + len(contents) <= most

    def _store(self, contents: list[bytes]) -> None:
        for content in contents:
            self._messages.push(NARROW, content)

    def _serve(self) -> list[int]:
        """Return the tickets of the pushes that have room now."""
        served = []
        while self._waiting and self._fits(self._waiting[0].contents):
            push = self._waiting.pop(0)
            served.append(push.ticket)
            self._store(push.contents)
        return served

    def _give_up(self, tickets: set[int]) -> None:
        self._given_up |= tickets
        self._waiting = [one for one in self._waiting if one.ticket not in tickets]

    def _cancelled(self, arguments: list[Any], result: Any) -> None:
        waits = any(one.ticket == arguments[0] for one in self._waiting)
        self._expect("push cancelled", result, waits)
        if waits:
            self._give_up({arguments[0]})

    # --- the end --------------------------------------------------------------------------------------------------

    def check(self, machines: dict[str, Machine], contents: dict[str, dict[bytes, collections.Counter[bytes]]]) -> None:
        """Compare the contents of each replica; `contents` are its messages by queue."""
        expected = {name: collections.Counter(one for _, one in self._messages.line(name)) for name in SESSION_QUEUES}
        for held in self._messages.held.values():
            expected[held.queue][held.content] += 1
        for host, machine in machines.items():
            found = contents[host]
            wrong = [name for name, messages in expected.items() if found.get(name, collections.Counter()) != messages]
            if wrong:
                self._report("message lost or too many", f"{host}: {wrong}")
            self._expect(f"sessions of {host}", len(machine.state.sessions), len(self._sessions))
            self._expect(f"waiting pushes of {host}", len(machine.state.waiting_pushes), len(self._waiting))
            for name in LOCKS:
                self._expect(f"lock of {host}", machine.state.locks.holder(name), self._locks.holder(name))
        applied = {content for content, result in self._results.items() if not isinstance(result, Fault)}
        if self._refused & applied:
            self._report("refused but applied", sorted(self._refused & applied)[:5])
