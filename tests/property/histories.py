"""Random histories of the log with every command, drawn from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

from lmqcluster.core import Op
from lmqcluster.core.handlers.waiting_pushes import Waits
from lmqcluster.core.log.commands import PULLS
from lmqcluster.core.log.notices import Pushed
from tests.property.driver import UNDO

from .driver import SECOND

__all__ = ["NODES", "History"]

Command = list[Any]

NODES = (b"n1", b"n2")
_QUEUES = (b"a", b"a", b"a", b"b", b"c", b"d", b"a+b", b"a+c")
_PATTERNS = (b"", b"a", b"^b$", b"b|c", b"\\+", b"none")
_OWNERS = (b"", b"", b"o", b"p")
_KEYS = (None, None, None, b"k1", b"k2", b"k3")
_LABELS = (b"", b"", b"x", b"y")
_SECONDS = (None, 0, 1, 1.5, 60)
_TIMES_US = (0, 0, 1, SECOND, 2 * SECOND, 60 * SECOND)
_STEPS_US = (0, 0, 0, 0, 1, 500, SECOND // 2, SECOND, 2 * SECOND, 30 * SECOND, 700 * SECOND)
_PROPERTIES: dict[bytes, tuple[Any, ...]] = {
    b"accum": (0, 1, 2000),
    b"retry": (0, 1, 2),
    b"timeout": (30, 1, 0.5, 0),
    b"hooks": ([], [[b"pre_http_push", [[b"lmq_hook_preserve_header", [b"x-a"]]]]]),
    b"max_items": (None, 0, 1, 2, 3),
    b"max_size": (None, 1, 4, 20),
    b"max_item_size": (None, 2),
    b"discard_old_when_full": (None, False, True),
    b"delay": _SECONDS,
    b"max_age": (None, 1, 2.5),
    b"max_queue_age": (None, 1, 2, 15),
    b"expire_to_queue": (None, b"b", b"d"),
    b"dead_letter_queue": (None, b"b", b"dead"),
    b"retry_delay": _SECONDS,
    b"retry_backoff": (None, 2, 1.5),
    b"retry_delay_max": (None, 2),
    b"destination_queues": (None, None, [b"b"], [b"c", b"d"], []),
    b"fanout_only": (None, True, False),
    b"exclusive": (None, None, True, False),
    b"open_transaction_timeout": (None, 1),
    b"key_window": (None, 1, 2, 60),
    b"key_scope": (None, b"queue", b"group"),
}


class History:
    """Draws batches. It learns of deliveries, sessions and tickets from the results."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._delivered: list[tuple[bytes, int, int]] = []
        self._sessions = [1]
        self._claim = 0
        self._tickets = [1]

    def step_us(self) -> int:
        """Return the advance of log time before the next batch."""
        return self.random.choice(_STEPS_US)

    def batch(self) -> list[Command]:
        """Return the commands of the next batch."""
        return [self._command() for _ in range(self.random.choice((0, 1, 1, 2, 3, 5)))]

    def note(self, commands: list[Command], results: list[Any], notices: list[Any]) -> None:
        """Learn from the results of a batch what later commands can name."""
        for command, result in zip(commands, results, strict=True):
            if command[0] in PULLS and isinstance(result, list):
                self._delivered += [(queue, number, message.sequence) for queue, number, _, message in result]
            elif command[0] == Op.OPEN_SESSION and isinstance(result, int):
                self._sessions.append(result)
            elif command[0] == Op.CLAIM and isinstance(result, int):
                self._claim = result
            elif isinstance(result, Waits):
                self._tickets.append(result.ticket)
        for notice in notices:
            if isinstance(notice, Pushed) and notice.ticket in self._tickets[1:]:
                self._tickets.remove(notice.ticket)

    def _command(self) -> Command:
        draw = self.random.choice((self._push, self._push, self._pull, self._pull, self._settle, self._settle,
                                   self._configure, self._operate, self._bind, self._in_session, self._wait,
                                   self._by_batches, self._poll, self._transact, self._access, self._schedule))  # fmt: skip
        return draw()

    def _queue(self) -> bytes:
        return self.random.choice(_QUEUES)

    def _body(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 1, 2, 3, 12)))

    def _traits(self) -> list[Any]:
        pick = self.random.choice
        if pick((True, False)):
            return []
        return [pick((-1, *_TIMES_US)), 0, pick(_TIMES_US), pick((0, 0, 1, -1)), pick(_LABELS), pick((b"", b"g", b"h"))]

    def _item(self) -> list[Any]:
        return [self._body(), self.random.choice((None, b"t")), self._attributes(), self.random.choice(_KEYS)]

    def _attributes(self) -> bytes:
        return self.random.choice((b"", b"", b"\x81\xa1a\x01", b"\x82\xa1a\xa1b\xa1c\xc4\x01\xff"))

    def _headers(self) -> list[Any]:
        return self.random.choice(([], [[[b"x-a", b"1"]]], [[[b"x-b", b"2"]]]))

    def _rows(self, *, keys: bool = True) -> list[Any]:
        rows = [[*self._item(), self._traits(), *self._headers()] for _ in range(self.random.randint(1, 3))]
        return rows if keys else [[*row[:3], None, *row[4:]] for row in rows]

    def _push(self) -> Command:
        pick, queue, owner = self.random.choice, self._queue(), self.random.choice(_OWNERS)
        bodies = [self._body() for _ in range(self.random.randint(0, 3))]
        marked = [self._item()[:3] for _ in bodies]
        commands: list[Command] = [
            [Op.PUSH, queue, pick((None, b"t")), bodies, None, 0],
            [Op.PUSH, queue, None, bodies, pick((b"p1", b"p2")), self.random.randint(1, 9), owner],
            [Op.PUSH_EACH, [self._queue(), queue], [*self._item(), *self._headers()]],
            [Op.PUSH_ROWS, queue, self._rows(), owner],
            [Op.PUSH_ROWS, queue, self._rows(keys=False), owner, pick((b"p3", b"p4")), self.random.randint(1, 9)],
            [Op.PUSH_STREAM, queue, marked, b"job", b"s", self.random.randint(0, 6), b"", pick((False, True)), owner],
            self._in_epochs(owner),
            self._in_epochs(owner),
            [Op.END_JOBS, [pick((b"job", b"epochs"))], owner],
            [Op.PUSH_ROWS, queue, self._rows(), owner, None, 0, True],
            [
                Op.PUSH_ATTEMPTS,
                queue,
                [[*row[:3], pick((None, b"t1", b"t2")), *row[4:]] for row in self._rows()],
                owner,
            ],
        ]
        return pick(commands)

    def _in_epochs(self, owner: bytes) -> Command:
        pick, epoch, run = self.random.choice, self.random.randint(0, 1), self.random.choice((b"r1", b"r2", b"r3"))
        rows = [pick((b"1", b"2", b"3")) for _ in range(self.random.randint(0, 3))]
        items, note = [[row, None, b""] for row in rows], b"".join(row * 16 for row in rows)
        push = [Op.PUSH_STREAM, self._queue(), items, b"epochs", pick((b"s", b"t")), self.random.randint(0, 3), note]
        commands: list[Command] = [
            [Op.BEGIN_EPOCH, b"epochs", epoch, run, b"0" * 16, owner],
            [*push, False, owner, epoch, run],
            [*push, False, owner, epoch, run],
            [Op.FINISH_EPOCH, b"epochs", epoch, run, self.random.randint(0, 3), b"0" * 16, owner],
        ]
        return pick(commands)

    def _pull(self) -> Command:
        pick, count = self.random.choice, self.random.randint(0, 4)
        commands: list[Command] = [
            [Op.PULL, self._queue(), count],
            [Op.PULL, self._queue(), count],
            [Op.PULL_FIRST, [self._queue(), self._queue()], count],
            [Op.PULL, self._queue(), count, pick(_TIMES_US), pick((False, False, True))],
        ]
        return pick(commands)

    def _receipts(self, most: int = 3) -> tuple[bytes, list[int]]:
        latest = self._delivered[-12:]
        if not latest:
            return self._queue(), [1]
        chosen = [self.random.choice(latest) for _ in range(self.random.randint(1, most))]
        queue = chosen[0][0]
        return queue, list(dict.fromkeys(number for name, number, _ in chosen if name == queue))

    def _settle(self) -> Command:
        pick = self.random.choice
        queue, numbers = self._receipts()
        commands: list[Command] = [
            [Op.ACK, queue, numbers],
            [Op.ACK, queue, numbers],
            [Op.NACK, queue, numbers],
            [Op.NACK, queue, numbers, *UNDO],
            [Op.NACK, queue, numbers, pick((0, 1, 2)), pick((-1, *_TIMES_US))],
            [Op.NACK, queue, numbers, pick((0, 1, 2)), -1, False, pick((b"no", b"e" * 40)), pick((20, 1_000))],
            [Op.EXTEND, queue, numbers],
            [Op.EXTEND, queue, numbers, pick((1, SECOND, 60 * SECOND))],
        ]
        return pick(commands)

    def _annotations(self) -> list[list[Any]]:
        names = self.random.sample((b"a", b"b", b"c"), self.random.randint(0, 3))
        return [[name, self.random.choice((None, b"", b"x", b"y" * 9_000))] for name in names]

    def _properties(self, *, removes: bool) -> list[list[Any]]:
        names = self.random.sample(sorted(_PROPERTIES), self.random.randint(1, 3))
        rows = [[name, self.random.choice(_PROPERTIES[name])] for name in names]
        return [row for row in rows if removes or row[1] is not None]

    def _configure(self) -> Command:
        pick = self.random.choice
        rules = [[pick(_PATTERNS), self._properties(removes=False)] for _ in range(self.random.randint(0, 3))]
        commands: list[Command] = [
            [Op.SET_PROPERTIES, self._queue(), [row for row in self._properties(removes=True) if row[1] is not None]],
            [Op.SET_PROPERTIES, self._queue(), [[name, value] for name, value in self._properties(removes=True)
                                                if value is not None or name not in (b"accum", b"retry")]],
            [Op.SET_DEFAULTS, rules],
            [Op.SET_DEFAULTS, rules],
            [Op.SET_PROPERTIES, self._queue(), [], False, True],
            [Op.SET_PROPERTIES, self._queue(), self._properties(removes=True), pick((False, True)), False,
             self._annotations(), pick((False, True))],
        ]  # fmt: skip
        return pick(commands)

    def _operate(self) -> Command:
        pick, queue, count = self.random.choice, self._queue(), self.random.randint(1, 3)
        commands: list[Command] = [
            [Op.DELETE, queue],
            [Op.PURGE, queue, pick((0, count))],
            [Op.PURGE, queue, pick((0, count)), b"", None, True],
            [Op.MOVE, queue, self._queue(), count],
            [Op.SUSPEND, queue, pick((True, False, False))],
            [Op.PURGE, queue, count, pick(_LABELS)],
            [Op.START_MOVE_TASK, pick((b"a", b"b", b"dead")), pick((b"", self._queue())), pick((0, 1, 20))],
            [Op.CANCEL_MOVE_TASK, pick((b"a", b"b", b"dead")), self.random.randint(1, 9)],
            [Op.REDRIVE, pick((b"b", b"dead")), pick((b"", self._queue())), pick(_LABELS), count],
            [Op.CREATE, queue, pick(_OWNERS)],
            [Op.CREATE, queue, pick(_OWNERS), self._properties(removes=False), False, self._annotations()],
            [Op.BARRIER],
            [Op.DIGEST, self.random.randbytes(8)],
        ]
        return pick(commands)

    def _bind(self) -> Command:
        pick = self.random.choice
        child = pick((b"a+b", b"a+c"))
        commands: list[Command] = [
            [Op.BIND, b"a", child],
            [Op.BIND, b"a", child],
            [Op.BIND, b"a", child, False],
            [Op.BIND, self._queue(), self._queue()],
            [Op.BIND, self._queue(), self._queue(), False],
        ]
        return pick(commands)

    def _in_session(self) -> Command:
        pick, session, owner = self.random.choice, self.random.choice(self._sessions[-2:]), b""
        lock = pick((b"l", b"m"))
        commands: list[Command] = [
            [Op.OPEN_SESSION, pick((SECOND, 60 * SECOND, 3_600 * SECOND)), owner],
            [Op.OPEN_SESSION, 3_600 * SECOND, owner],
            [Op.RENEW_SESSION, session, owner],
            [Op.END_SESSION, session, owner],
            [Op.PULL_IN_SESSION, self._queue(), pick((1, 2)), pick(_TIMES_US), session, pick((0, 1)), -1, owner],
            [Op.PULL_IN_SESSION, self._queue(), pick((1, 2)), 0, session, 1, self._last_number(), owner],
            [Op.LEAVE_QUEUE, self._queue(), session, owner],
            [Op.LOCK, lock, session, pick((True, False)), owner],
            [Op.UNLOCK, lock, session, owner],
        ]
        return pick(commands)

    def _last_number(self) -> int:
        return self._delivered[-1][1] if self._delivered else -1

    def _wait(self) -> Command:
        commands: list[Command] = [
            [Op.PUSH_ROWS, self._queue(), self._rows(), b"", None, 0, False, self.random.choice(_TIMES_US)],
            [Op.PUSH_ROWS, self._queue(), self._rows(), self.random.choice(_OWNERS), None, 0, False, 60 * SECOND],
            [Op.CANCEL_PUSH, self.random.choice(self._tickets[-3:]), b""],
        ]
        return self.random.choice(commands)

    def _by_batches(self) -> Command:
        pick, epoch, owner = self.random.choice, self.random.randint(1, 4), self.random.choice(_OWNERS)
        lease_us = pick((SECOND, 60 * SECOND))
        names, session = [self._queue(), self._queue()], self._claim
        commands: list[Command] = [
            [Op.RESERVE, b"s", epoch, self._queue(), True, pick((1, 3, 8)), lease_us, session, owner],
            [Op.RESERVE, b"s", epoch, names, pick((True, False)), pick((1, 3, 8)), lease_us, session, owner],
            [Op.RESERVE, b"s", epoch, names, pick((True, False)), pick((1, 3, 8)), lease_us, session, b""],
            [Op.RENEW, b"s", lease_us, session, 0, owner],
            [Op.SETTLE_BATCHES, b"s", epoch, session, owner],
            [Op.ABANDON_BATCHES, b"s", session, owner],
            [Op.CLAIM, b"s", owner],
            [Op.ABANDON_BATCHES, b"s", 0, owner, True],
        ]
        return pick(commands)

    def _poll(self) -> Command:
        pick, queue = self.random.choice, self._queue()
        hide_us = pick((0, -SECOND, 1, SECOND, 60 * SECOND))
        sequence, tag = (self._delivered[-1][2], self._delivered[-1][1]) if self._delivered else (1, 1)
        switches = [pick((None, False, False, True)) for _ in range(4)]
        commands: list[Command] = [
            [Op.CREATE, queue, pick(_OWNERS), self._properties(removes=False), True],
            [Op.POLL, queue, self.random.randint(0, 3), hide_us, pick((True, False)), pick((True, False))],
            [Op.POLL, queue, self.random.randint(0, 3), hide_us, pick((True, False)), pick((True, False))],
            [
                Op.POLL,
                queue,
                2,
                pick((SECOND, 60 * SECOND)),
                False,
                False,
                pick(_OWNERS),
                pick((b"t1", b"t2")),
                60 * SECOND,
            ],
            [Op.UPDATE, queue, sequence, tag, hide_us, pick((True, False))],
            [Op.DELETE_POLLED, queue, [[sequence, tag]]],
            [Op.SET_POLL_LIMITS, pick((b"", queue)), switches],
            [Op.SET_POLL_LIMITS, pick((b"", queue)), None, [pick((None, None, 1, 3)), pick((1, SECOND))]],
            [Op.SET_API_KEY, pick((b"k", b"l")), b"a"],
            [Op.SET_API_KEY, pick((b"k", b"l")), None],
        ]
        return pick(commands)

    def _transact(self) -> Command:
        return [Op.TRANSACTION, [self._operation() for _ in range(self.random.randint(1, 4))], b""]

    def _operation(self) -> list[Any]:
        pick = self.random.choice
        queue, numbers = self._receipts(1)
        operations: list[list[Any]] = [
            [Op.PUSH_ROWS, self._queue(), self._rows()[:1]],
            [Op.ACK, queue, numbers],
            [Op.NACK, queue, numbers, pick((0, 1, 2)), pick((-1, *_TIMES_US))],
            [Op.EXTEND, queue, numbers, pick(_TIMES_US)],
        ]
        return pick(operations)

    def _schedule(self) -> Command:
        pick, queue, name = self.random.choice, self._queue(), self.random.choice((b"s", b"t"))
        was = pick((queue, queue, b""))
        options = [] if pick((True, False)) else [-1, 0, pick(_TIMES_US), 1, b"x", b""]
        message = [pick((None, b"t")), self._attributes(), options]
        bounds = [0, pick((0, 0, 2_000 * SECOND)), pick((0, SECOND // 2)), pick((0, 1))]
        interval = [pick((1, 1, 30)) * SECOND, b"", b"", *bounds]
        cron = [0, b"* * * * *", b"UTC", *bounds]
        after_us = pick((0, 5 * SECOND))
        supply = [name, self.random.randint(1, 4), after_us, [after_us + 1, after_us + 2], 1, pick((True, False))]
        commands: list[Command] = [
            [Op.SET_SCHEDULE, name, [queue, message, interval], self._body(), [], False, was, pick(_OWNERS)],
            [Op.SET_SCHEDULE, name, [queue, message, interval], self._body(), [], False, b""],
            [Op.SET_SCHEDULE, name, [queue, message, cron], self._body(), [5 * SECOND], False, was],
            [Op.CHANGE_SCHEDULE, name, pick((0, 1, 2, 3)), was],
            [Op.SUPPLY_TIMES, [supply]],
            [Op.REPORT_CLOCK, pick((b"n1", b"n2")), pick((0, -SECOND, SECOND))],
            [Op.SET_SCHEDULE_CLOCK, pick((0, 0, SECOND, -SECOND, 3_600 * SECOND)), pick((False, False, True))],
            [Op.SET_SCHEDULE_CLOCK, 0, False],
        ]
        return pick(commands)

    def _access(self) -> Command:
        pick, name = self.random.choice, self.random.choice((b"o", b"p"))
        commands: list[Command] = [
            [
                *(Op.SET_TOKEN, name, name * 32, 3, b".*", pick((0, SECOND, 60 * SECOND)), True, 0),
                *(pick((b"", b"o", b"n")), pick((b"", b"k" * 32))),
            ],
            [Op.DELETE_TOKEN, name, True],
            [Op.SET_SALT, b"9876543210", True],
            [Op.SET_TIME, self.random.randrange(1 << 52)],
        ]
        return pick(commands)
