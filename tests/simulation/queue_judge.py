"""Invariants of queues in log order, under any faults of nodes and network.

The log is one history of commands and results. Each result is judged by the effects of the commands before it, once,
when the first replica applies it. A client's answer must be the result in the log, and a command reported as not
applied must never be applied. So all operations, transactions included, take effect at one moment between request and
answer, entirely or not at all.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Fault, Op, PushFlag
from lmqcluster.core.handlers.transactions import Conflict
from lmqcluster.core.log.results import TagState
from lmqcluster.core.queue.message_index import tag_of
from lmqcluster.wire.attributes import unpack_attributes
from lmqcluster.wire.reasons import REASON_ATTRIBUTE
from tests.simulation.limit_judge import LimitJudge
from tests.simulation.node_clients import body_of, look_at_bodies
from tests.simulation.queue_copies import Copies

if TYPE_CHECKING:
    from tests.simulation.checkers import Checkers
    from tests.simulation.queue_copies import Copy

__all__ = ["QueueJudge", "number_of"]

PUSHES = (Op.PUSH_ROWS, Op.TRANSACTION)


class QueueJudge:
    """Follows the queues `names`; reports contradictions."""

    def __init__(self, checkers: Checkers, names: frozenset[bytes]) -> None:
        self._checkers = checkers
        self._names = names
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self._index = 0
        self._copies = Copies()
        self._limits = LimitJudge(self._copies, self._report)
        self._deliveries: set[int] = set()
        self._results: dict[bytes, Any] = {}
        self._refused: set[bytes] = set()

    def _report(self, kind: str, detail: Any) -> None:
        self._checkers.report(kind, f"{detail}, log time {self._copies.now_us}")

    # --- answers to clients -------------------------------------------------------------------------------------------

    def answered(self, tag: bytes, result: Any) -> None:
        """Note that a client has the result of the command whose first message is `tag`."""
        if tag not in self._results or self._results[tag] != result:
            self._report("answer not in the log", f"{tag!r}: {result}, not {self._results.get(tag)}")

    def refused(self, tag: bytes) -> None:
        """Note that a client's command was refused: it was not and will never be applied."""
        self._refused.add(tag)

    def unanswered(self, tag: bytes) -> None:
        self._report("not answered", tag)

    # --- the log --------------------------------------------------------------------------------------------------

    def applied(self, index: int, now_us: int, commands: list[Any], results: list[Any]) -> None:
        """Judge an entry that a replica has applied; only the first replica counts."""
        if index <= self._index:
            return
        look_at_bodies(results)
        self._index = index
        self._copies.advance(now_us)
        for command, result in zip(commands, results, strict=False):
            if command[0] in PUSHES:
                self._note(command, result)
            if command[0] == Op.TRANSACTION or (
                command[1:] and type(command[1]) is bytes and command[1] in self._names
            ):
                self._judge(command, result)

    def _note(self, command: list[Any], result: Any) -> None:
        rows = (
            command[2] if command[0] == Op.PUSH_ROWS else [step[2][0] for step in command[1] if step[0] == Op.PUSH_ROWS]
        )
        tag = number_of(rows[0][0])
        if tag in self._results:
            self._report("applied twice", tag)
        self._results[tag] = result

    def _judge(self, command: list[Any], result: Any) -> None:
        op, queue, *arguments = command
        copies = self._copies
        if op == Op.PULL:
            lease_us, *settles = arguments[1:] or [0]
            self._give_up_used(queue, arguments[0], result or [])
            self._pulled(queue, lease_us or self._timeout_us(queue), True in settles, result or [])
        elif op == Op.POLL:
            delivered = [] if isinstance(result, Fault) else result or []
            self._give_up_used(queue, arguments[0], delivered)
            self._pulled(queue, arguments[1], False, delivered)
        elif op == Op.UPDATE:
            self._updated(queue, arguments, result)
        elif op == Op.DELETE_POLLED:
            self._deleted(queue, arguments[0], result)
        elif op == Op.TRANSACTION:
            self._transaction(queue, result)
        elif op == Op.PUSH_ROWS:
            self._pushed(queue, arguments[0], result)
        elif op in (Op.ACK, Op.NACK, Op.EXTEND):
            for delivery, settled in zip(arguments[0], result, strict=True):
                self._settled(op, queue, delivery, arguments[1:], settled)
        elif op == Op.SET_PROPERTIES:
            copies.properties[queue] = dict(arguments[0])
        elif op == Op.BIND:
            target, *bound = arguments
            is_bound = (queue, target) in copies.bound
            if False in bound:
                self._expect("binding", result, is_bound)
                copies.bound.discard((queue, target))
            else:
                self._expect("binding", result, not is_bound)
                copies.bound.add((queue, target))
        elif op == Op.PURGE:
            label = b"".join(arguments[1:2])
            found = [copy for copy in copies.waiting(queue) if not label or copy.label == label]
            self._expect("removed", result or 0, len(found))
            for copy in found:
                copies.remove(copy)
            if not label:
                copies.keys = {key: known for key, known in copies.keys.items() if key[0] != queue}
        elif op == Op.REDRIVE:
            found = [copy for copy in copies.waiting(queue) if copy.origin]
            self._expect("redriven", result or 0, len(found))
            for copy in found:
                copies.send_back(copy)

    def _expect(self, kind: str, result: Any, expected: Any) -> None:
        if result != expected:
            self._report(f"wrong result: {kind}", f"{result}, not {expected}")

    # --- pushes ---------------------------------------------------------------------------------------------------

    def _pushed(self, queue: bytes, rows: list[Any], result: Any) -> None:
        if isinstance(result, Fault):
            if not self._is_full(queue, len(rows)):
                self._report("refused without cause", f"{queue!r}: {result}")
            return
        for row, one in zip(rows, result, strict=True):
            self._stored(queue, row, one)

    def _stored(self, queue: bytes, row: list[Any], result: tuple[int, int]) -> None:
        if row[3] is not None and self._is_repeated(queue, row, result):
            return
        if self._is_full(queue, 1):
            self._report("bound exceeded", f"{queue!r} holds {len(self._copies.waiting(queue))}")
        self._copies.push(queue, number_of(row[0]), row[4])

    def _is_repeated(self, queue: bytes, row: list[Any], result: tuple[int, int]) -> bool:
        """Return whether a push has a key that counts, and judge its result: a key is stored once in its window."""
        copies, key = self._copies, (queue, row[4][5] if row[4] else b"", row[3])
        flag, sequence = result
        first, ends_us = copies.keys.get(key, (0, 0))
        is_repeated = copies.now_us < ends_us
        if is_repeated != bool(flag & PushFlag.REPLAYED):
            self._report("key stored twice" if is_repeated else "key not stored", f"{key}: {result}, ends {ends_us}")
        elif is_repeated and sequence != first:
            self._report("wrong first push", f"{key}: {sequence}, not {first}")
        if not is_repeated:
            copies.keys[key] = (sequence, copies.now_us + copies.value(queue, b"key_window", 0) * 1_000_000)
        return is_repeated

    def _is_full(self, queue: bytes, more: int) -> bool:
        most = self._copies.value(queue, b"max_items", None)
        return most is not None and len(self._copies.waiting(queue)) + more > most

    # --- deliveries -----------------------------------------------------------------------------------------------

    def _timeout_us(self, queue: bytes) -> int:
        timeout_s: int = self._copies.value(queue, b"timeout", 30)
        return timeout_s * 1_000_000

    def _give_up_used(self, queue: bytes, count: int, delivered: list[Any]) -> None:
        """Give up the messages that a pull of `count` has found in line and that may not be delivered again."""
        copies = self._copies
        found = list(filter(copies.is_used_up, copies.waiting(queue)))
        if found and len(delivered) == count:
            # The pull has not looked behind the last message that it got.
            number = number_of(body_of(delivered[-1][3].content))
            last = next((each for each in copies.of(queue) if each.number == number), None)
            found = [each for each in found if last and (each.priority, each.due_us) < (last.priority, last.due_us)]
        for used_up in found:
            if used_up.due_us <= copies.now_us:
                copies.give_up(used_up, b"dead_letter_queue")

    def _pulled(self, queue: bytes, lease_us: int, settles: bool, delivered: list[Any]) -> None:
        copies = self._copies
        taken: list[Copy] = []
        for _queue, delivery, remaining, message in delivered:
            number = number_of(body_of(message.content))
            if delivery in self._deliveries:
                self._report("delivery given twice", delivery)
            self._deliveries.add(delivery)
            copy = next((each for each in copies.of(queue) if each.number == number), None)
            if copy is None:
                self._report("delivered though gone", f"{number!r} from {queue!r}")
                continue
            self._check_delivery(copy, remaining, message, taken)
            if copy.delivery:
                copies.held.pop(copy.delivery)
            copies.lease(copy, delivery, copies.now_us + lease_us)
            copy.sequence, copy.tag = message.sequence, tag_of(delivery)
            if settles:
                copies.remove(copy)
            else:
                taken.append(copy)
        for copy in taken if lease_us <= 0 else []:
            copies.come_back(copy, copies.now_us + lease_us)

    # --- requests with id and tag ---------------------------------------------------------------------------------

    def _updated(self, queue: bytes, arguments: list[int], result: Any) -> None:
        sequence, tag, hide_us, _keeps_tag = arguments
        state, number = (TagState.GONE, 0) if isinstance(result, Fault) else result
        copy = self._named(queue, sequence, tag, state)
        if copy is None:
            return
        copies, copy.tag = self._copies, tag_of(number)
        if hide_us > 0:
            copies.held.pop(copy.delivery)
            copy.delivery, copy.until_us = number, copies.now_us + hide_us
            copies.held[number] = copy
        else:
            copies.come_back(copy, copies.now_us + hide_us)

    def _deleted(self, queue: bytes, pairs: list[tuple[int, int]], result: Any) -> None:
        states = [TagState.GONE] * len(pairs) if isinstance(result, Fault) else result
        for (sequence, tag), state in zip(pairs, states, strict=True):
            copy = self._named(queue, sequence, tag, state)
            if copy is not None:
                self._copies.remove(copy)

    def _named(self, queue: bytes, sequence: int, tag: int, state: TagState) -> Copy | None:
        """Judge the state of a tag; return the message if it is valid."""
        copy = next((each for each in self._copies.of(queue) if each.sequence == sequence), None)
        if copy is None:
            expected = TagState.GONE
        elif copy.tag != tag:
            expected = TagState.OUTDATED
        else:
            expected = TagState.VALID if copy.delivery else TagState.EXPIRED
        if state != expected:
            self._report("tag judged wrongly", f"{sequence}, {tag} in {queue!r}: {state!r}, not {expected!r}")
        return copy if expected is TagState.VALID else None

    def _check_delivery(self, copy: Copy, remaining: int, message: Any, taken: list[Copy]) -> None:
        """Judge a delivery; `taken` are the messages that its pull got before."""
        traits = getattr(message, "traits", None)
        shown = (0, b"", b"") if traits is None else (traits.priority, traits.label, traits.group)
        now_us = self._copies.now_us
        for kind, is_wrong in (
            ("delivered while held", copy.delivery),
            ("delivered too early", copy.due_us > now_us),
            ("delivered too late", self._copies.is_over(copy)),
            ("deliveries miscounted", remaining != copy.remaining - 1),
            ("traits changed", shown != (copy.priority, copy.label, copy.group)),
            ("wrong reason", unpack_attributes(message.meta[1]).get(REASON_ATTRIBUTE, "") != copy.reason.decode()),
        ):
            if is_wrong:
                self._report(kind, copy)
        if self._copies.value(copy.queue, b"group_mode", b"ordered") == b"fair":
            self._limits.check(copy)
            return
        if copy.group:
            self._check_group(copy, taken)
            return
        place = (copy.priority, copy.due_us)
        for other in self._copies.waiting(copy.queue):
            if other.due_us <= now_us and (other.priority, other.due_us) < place:
                self._report("out of order", f"{copy} before {other}")
                return

    def _check_group(self, copy: Copy, taken: list[Copy]) -> None:
        """Check that all messages before this one in its group have been taken by the same pull."""
        others = [each for each in self._copies.of(copy.queue) if each.group == copy.group and each is not copy]
        most = self._copies.value(copy.queue, b"group_max_in_flight", 1)
        if sum(other.delivery > 0 for other in others) >= most:
            self._report("too many of a group at once", copy)
        before = [other for other in others if other.arrival < copy.arrival and other not in taken]
        if any(other.delivery for other in before):
            self._report("behind one in flight", copy)
        if any(not other.delivery for other in before):
            self._report("group out of order", copy)

    def _settled(self, op: Op, queue: bytes, delivery: int, arguments: list[Any], settled: bool) -> None:
        copy = self._copies.live(queue, delivery)
        if settled != (copy is not None):
            self._report("settled wrongly", f"{Op(op).name} of {delivery}: {settled}, held is {copy}")
        if copy is not None:
            self._settle(op, copy, arguments)

    def _settle(self, op: Op, copy: Copy, arguments: list[Any]) -> None:
        if op == Op.ACK:
            self._copies.remove(copy)
        elif op == Op.EXTEND:
            copy.until_us = self._copies.now_us + arguments[0]
        elif True in arguments[2:]:
            self._copies.put_back(copy)
        else:
            copy.reason = arguments[3] if arguments[3:] else copy.reason
            self._copies.give_back(copy, *arguments[:2])

    # --- transactions ---------------------------------------------------------------------------------------------

    def _transaction(self, operations: list[Any], result: Any) -> None:
        if isinstance(result, Conflict):
            if self._can(operations[: result.failed + 1]):
                self._report("refused without cause", f"{operations}: {result}")
            return
        if not self._can(operations):
            self._report("transaction in part", f"{operations}: {result}")
        for (op, queue, (argument,), *rest), one in zip(operations, result, strict=True):
            if op == Op.PUSH_ROWS:
                self._stored(queue, argument, one)
            elif (copy := self._copies.live(queue, argument)) is not None:
                self._settle(op, copy, rest)

    def _can(self, operations: list[Any]) -> bool:
        """Return whether all operations can be applied one after the other."""
        pushes: collections.Counter[bytes] = collections.Counter()
        used: set[int] = set()
        for op, queue, (argument,), *_ in operations:
            if op == Op.PUSH_ROWS:
                pushes[queue] += 1
                if self._is_full(queue, pushes[queue]):
                    return False
            elif argument in used or self._copies.live(queue, argument) is None:
                return False
            else:
                used.add(argument)
        return True

    # --- the end --------------------------------------------------------------------------------------------------

    def check(self, contents: dict[str, dict[bytes, collections.Counter[bytes]]]) -> None:
        """Check `contents`, the numbers that each replica holds, by queue."""
        expected: dict[bytes, collections.Counter[bytes]] = {name: collections.Counter() for name in self._names}
        for copy in self._copies.copies:
            expected[copy.queue][copy.number] += 1
        for host, held in contents.items():
            for name, numbers in expected.items():
                found: collections.Counter[bytes] = held.get(name, collections.Counter())
                for kind, which in (("message lost", numbers - found), ("message too many", found - numbers)):
                    if which:
                        self._report(kind, f"{host}: {name!r} {sorted(which)[:5]}")
        applied = {tag for tag, result in self._results.items() if not isinstance(result, Fault)}
        if wrong := self._refused & applied:
            self._report("refused but applied", sorted(wrong)[:5])


def number_of(content: bytes) -> bytes:
    """Return the part of the content that identifies the message."""
    return content[:9]
