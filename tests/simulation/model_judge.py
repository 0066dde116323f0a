"""The judge that follows the log with the naive model of the property tests: each result must be that of the model.

So it covers what clients may expect of these commands: nothing acknowledged is lost or stored twice, no message is
delivered to two holders, a repeated poll gets the same messages, groups keep their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Fault, Op
from tests.property.batch_model import BatchModel
from tests.property.polled_model import PolledModel
from tests.property.rich_model import REFUSED
from tests.simulation.node_clients import body_of, look_at_bodies
from tests.simulation.queue_judge import number_of

if TYPE_CHECKING:
    from lmqcluster.core import Applied
    from tests.simulation.checkers import Checkers

__all__ = ["ATTEMPTED", "DEADS", "FIRST", "MODELLED", "SECOND", "SUBSCRIPTION", "ModelJudge"]

RETRIES = 1_000_000
FIRST, SECOND, DEADS, ATTEMPTED, SUBSCRIPTION = b"first", b"second", b"deads", b"attempted", b"subscription"
ITEMS_MAX = 12
DYING: list[list[Any]] = [[b"dead_letter_queue", DEADS], [b"retry", 1], [b"timeout", 2]]
MODELLED: dict[bytes, list[list[Any]]] = {
    FIRST: DYING,
    SECOND: [*DYING, [b"group_max_in_flight", 2]],
    DEADS: [[b"retry", RETRIES], [b"timeout", 2]],
    ATTEMPTED: [[b"max_items", ITEMS_MAX], [b"retry", RETRIES]],
}
"""By name, the properties. `ATTEMPTED` is polled, the others are pulled; two of them also by the subscription."""

STEP_MAX, BLOCK = 10_000, 100
SEVERAL = (Op.PULL_FIRST, Op.PUSH_EACH)
PUSHES = (Op.PUSH_ROWS, Op.PUSH_ATTEMPTS)
DELIVERIES = (Op.PULL, Op.PULL_FIRST, Op.POLL)
SESSION_AT = {Op.RESERVE: 6, Op.RENEW: 2, Op.SETTLE_BATCHES: 2, Op.ABANDON_BATCHES: 1}
"""By command of a subscription, the place of the session among its fields."""


class _Model(BatchModel, PolledModel):
    """All features together."""

    def try_rows(self, name: bytes, rows: list[Any], owner: bytes = b"") -> list[Any] | int | None:
        """Store all rows, without a copy to return to: no queue here refuses any of them."""
        return [self.push_row(name, row, owner) for row in rows]

    def next_change_us(self) -> int:
        """Return when time alone changes something."""
        changing = (e.due_us for queue in self.queues.values() for e in queue.entries if e.state in _CHANGING)
        return min(changing, default=1 << 62)


_CHANGING = ("leased", "scheduled")


class _Names:
    """Numbers of the machine and those of the model, which counts its own queues only: one for one."""

    def __init__(self) -> None:
        self._models = {0: 0}
        self._machines = {0: 0}

    def model(self, number: int) -> int:
        return self._models.get(number, -1)

    def match(self, number: int, models: int) -> bool:
        """Return whether the two stand for each other, as they do from now on if both are new."""
        return self._models.setdefault(number, models) == models and self._machines.setdefault(models, number) == number


class ModelJudge:
    """Applies the commands on the queues `MODELLED` to the model, in log order, and compares the results."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self._index = -1
        self._model = model = _Model(STEP_MAX, BLOCK)
        self._next_us = 0
        self._deliveries, self._sequences = _Names(), _Names()
        self._stored: dict[bytes, int] = {}
        self._session = self._last_session = 0
        # By epoch, the bodies of each batch that was complete; one that was abandoned may be followed by another.
        self._batches: dict[int, set[tuple[bytes, ...]]] = defaultdict(set)
        self._verbs: dict[int, Callable[..., Any]] = {
            Op.PUSH_ROWS: model.push_rows,
            Op.PUSH_EACH: model.push_each,
            Op.PUSH_ATTEMPTS: model.push_attempts,
            Op.PULL: model.pull,
            Op.PULL_FIRST: model.pull_first,
            Op.POLL: model.poll,
            Op.ACK: model.ack,
            Op.NACK: model.nack,
            Op.UPDATE: model.update,
            Op.DELETE_POLLED: model.delete_polled,
            Op.CREATE: model.create,
            Op.DELETE: model.delete,
            Op.SET_PROPERTIES: lambda name, pairs, *_: model.set_properties(name, pairs),
            Op.SUSPEND: model.suspend,
            Op.PURGE: model.purge,
            Op.MOVE: model.move,
            Op.REDRIVE: model.redrive,
            Op.SET_POLL_LIMITS: model.set_poll_limits,
            Op.RESERVE: model.reserve,
            Op.RENEW: lambda name, lease_us, *_: model.renew(name, lease_us),
            Op.SETTLE_BATCHES: lambda name, epoch, *_: model.settle_batches(name, epoch),
            Op.ABANDON_BATCHES: lambda name, *_: model.abandon_batches(name),
        }

    def _report(self, kind: str, detail: str) -> None:
        self._checkers.report(kind, f"{detail}, log time {self._model.now_us}")

    # --- the log --------------------------------------------------------------------------------------------------

    def applied(self, index: int, now_us: int, commands: list[Any], applied: Applied) -> None:
        """Judge an entry that a replica has applied; only the first replica counts."""
        if index <= self._index:
            return
        ours = [pair for pair in zip(commands, applied.results, strict=False) if _is_modelled(pair[0])]
        look_at_bodies(result for _command, result in ours)
        self._index = index
        if ours or now_us >= self._next_us:
            self._model.advance(now_us)
            for command, result in ours:
                self._judge(command, result)
            self._next_us = self._model.next_change_us()

    def _judge(self, command: list[Any], result: Any) -> None:
        op, *fields = command
        if op == Op.CLAIM:
            self._claimed(result)
            return
        at = SESSION_AT.get(op)
        if at is not None and fields[at] != self._session:
            expected: Any = REFUSED
        else:
            expected = self._verbs[op](*self._translated(op, fields))
        if not self._is_same(op, fields, result, expected):
            self._report(f"wrong result: {Op(op).name.lower()}", f"{command}: {result}, not {expected}")
        if at is not None:
            self._note_batches(abandoned=op == Op.ABANDON_BATCHES and expected is False)

    def _claimed(self, session: int) -> None:
        if not session > self._last_session:
            self._report("wrong result: claim", f"{session} after {self._last_session}")
        self._session = self._last_session = session

    def _note_batches(self, *, abandoned: bool) -> None:
        model = self._model
        if abandoned and not model.batches and not model.settled:
            # A subscription that has neither is forgotten with its session.
            self._session = 0
        for epoch in model.batches:
            if isinstance(batch := model.read(epoch), list):
                self._batches[epoch].add(tuple(body for _number, body in batch))

    def _translated(self, op: int, fields: list[Any]) -> list[Any]:
        """Return the fields of a command with the numbers of the model."""
        sequence, delivery = self._sequences.model, self._deliveries.model
        if op in (Op.ACK, Op.NACK):
            return [fields[0], [delivery(number) for number in fields[1]], *fields[2:]]
        if op == Op.UPDATE:
            return [fields[0], sequence(fields[1]), delivery(fields[2]), *fields[3:]]
        if op == Op.DELETE_POLLED:
            return [fields[0], [(sequence(number), delivery(tag)) for number, tag in fields[1]]]
        at = {Op.PURGE: 3, Op.REDRIVE: 4}.get(Op(op))
        if at is not None and fields[at:] and fields[at] is not None:
            return [*fields[:at], [sequence(number) for number in fields[at]], *fields[at + 1 :]]
        return fields

    def _is_same(self, op: int, fields: list[Any], result: Any, expected: Any) -> bool:
        if isinstance(result, Fault) or expected == REFUSED:
            return isinstance(result, Fault) and bool(expected == REFUSED)
        if op in DELIVERIES:
            return self._are_delivered(result or [], expected)
        if op in PUSHES:
            same = all(
                one[0] == other[0] and self._sequences.match(one[1], other[1])
                for one, other in zip(result, expected, strict=True)
            )
            if op == Op.PUSH_ATTEMPTS:
                self._stored.update((row[3], one[1]) for row, one in zip(fields[1], result, strict=True) if one[1])
            return same
        if op == Op.UPDATE:
            return result[0] == expected[0] and self._deliveries.match(result[1], expected[1])
        return bool(result == expected)

    def _are_delivered(self, delivered: list[Any], expected: list[Any]) -> bool:
        shown = [(queue, left, body_of(one.content), _group_of(one)) for queue, _number, left, one in delivered]
        if shown != [(one[0], one[2], one[5], one[7][3] if one[7] else b"") for one in expected]:
            return False
        for (queue, number, _left, message), (_queue, models, *_) in zip(delivered, expected, strict=True):
            if not self._deliveries.match(number, models):
                return False
            entry = self._model.leased(queue, models)
            if entry is not None and not self._sequences.match(message.sequence, entry.arrival):
                return False
        return True

    # --- clients and the end --------------------------------------------------------------------------------------

    def acknowledged(self, attempt: bytes, sequence: int) -> None:
        """Compare the answer that a client has received with the message that the log has stored."""
        if sequence and self._stored.get(attempt) != sequence:
            self._report("acknowledged attempt not stored", f"{attempt!r}: {sequence}, not {self._stored.get(attempt)}")

    def unanswered(self, attempt: bytes) -> None:
        """Report a push that has no outcome although its node has run all the time."""
        self._report("not answered", repr(attempt))

    def read(self, epoch: int, bodies: tuple[bytes, ...]) -> None:
        """Compare the batch that a client reads at its node: an epoch always has the same messages in the same order."""
        if bodies not in self._batches[epoch]:
            self._report("batch changed", f"epoch {epoch}: {bodies}, not one of {self._batches[epoch]}")

    def check(self, contents: dict[str, dict[bytes, Counter[bytes]]]) -> None:
        """Compare the messages of each replica with those of the model, at the end of the log."""
        for name, queue in self._model.queues.items():
            expected = Counter(number_of(entry.body) for entry in queue.entries)
            for host, held in contents.items():
                found = held.get(name, Counter())
                for kind, which in (("lost", expected - found), ("too many", found - expected)):
                    if which:
                        self._report(f"modelled message {kind}", f"{host}: {name!r} {sorted(which)[:5]}")


def _is_modelled(command: list[Any]) -> bool:
    if command[0] in SEVERAL:
        return any(name in MODELLED for name in command[1])
    return command[0] != Op.TRANSACTION and len(command) > 1 and _is_name(command[1])


def _is_name(one: Any) -> bool:
    return type(one) is bytes and (one in MODELLED or one == SUBSCRIPTION)


def _group_of(message: Any) -> Any:
    traits = getattr(message, "traits", None)
    return b"" if traits is None else traits.group
