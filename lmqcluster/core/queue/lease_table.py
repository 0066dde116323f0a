"""The leases of one queue: messages by delivery number, ordered by deadline.

Numbers grow, and with an unchanged timeout so do deadlines. Most leases are therefore kept in a deque of runs, one
entry per pull regardless of its size; only leases out of order go to a heap. Settled leases leave their order entries
behind. These are skipped later, or swept once they outnumber the live ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ..messages.message import Message
from .expiry import NEVER

__all__ = ["LeaseTable"]

_SWEEP_MIN = 64


class LeaseTable:
    """Leases by number with O(1) settlement and the earliest deadline in amortised O(1), O(log n) out of order."""

    __slots__ = ("_late", "_runs", "messages")

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        # Runs are [deadline, first number, last number] with (deadline, number) strictly growing.
        self._runs: deque[list[int]] = deque()
        self._late: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, deadline_us: int, first: int, messages: list[Message]) -> None:
        """Lease `messages` under consecutive numbers from `first` until `deadline_us`, which the messages already carry."""
        last = first + len(messages) - 1
        self.messages.update(zip(range(first, last + 1), messages, strict=True))
        self._place(deadline_us, first, last)
        self._sweep_if_worn()

    def _place(self, deadline_us: int, first: int, last: int) -> None:
        if deadline_us == NEVER:
            # Leases of sessions have no deadline; they end with the session.
            return
        runs = self._runs
        if not runs or (deadline_us, first) > (runs[-1][0], runs[-1][2]):
            runs.append([deadline_us, first, last])
        else:
            for number in range(first, last + 1):
                heappush(self._late, (deadline_us, number))

    def load(self, numbers: list[int], messages: list[Message]) -> None:
        """Add the leases of a snapshot, in the order of the table; the messages carry their deadlines."""
        self.messages.update(zip(numbers, messages, strict=True))
        runs = self._runs
        for number, message in zip(numbers, messages, strict=True):
            if runs and runs[-1][0] == message.due_us and runs[-1][2] == number - 1:
                runs[-1][2] = number
            else:
                self._place(message.due_us, number, number)

    def reschedule(self, number: int, deadline_us: int) -> None:
        """Move the deadline of a live lease."""
        self.messages[number].due_us = deadline_us
        self._place(deadline_us, number, number)
        self._sweep_if_worn()

    def reschedule_live(self, now_us: int, first: int, count: int, deadline_us: int) -> None:
        """Move the deadlines of the live leases among `count` consecutive numbers."""
        for number in range(first, first + count):
            message = self.messages.get(number)
            if message is not None and message.due_us > now_us:
                message.due_us = deadline_us
        # Numbers without a live lease are skipped like those of settled leases.
        self._place(deadline_us, first, first + count - 1)
        self._sweep_if_worn()

    def forget_order(self) -> None:
        """Clear the order of leases if none is left; otherwise it would stay in memory until the next lease."""
        self._runs.clear()
        self._late.clear()

    def head_us(self) -> int | None:
        """Return the earliest deadline, or None if no lease has one."""
        head = self._head()
        return None if head is None else head[0]

    def bound_us(self) -> int:
        """Return a time by which all leases in order have expired; 0 if there are none."""
        return self._runs[-1][0] if self._runs else 0

    def ended(self, now_us: int) -> Iterator[Message]:
        """Yield messages whose leases have expired, in no order; some may come twice."""
        for deadline_us, first, last in self._runs:
            if deadline_us > now_us:
                break
            found = (self.messages.get(number) for number in range(first, last + 1))
            yield from (one for one in found if one is not None and one.due_us <= now_us)
        late = (self.messages.get(number) for deadline_us, number in self._late if deadline_us <= now_us)
        yield from (one for one in late if one is not None and one.due_us <= now_us)

    def pop_head(self) -> tuple[int, Message]:
        """Remove the lease with the smallest (deadline, number) and return its number and message.

        Raises:
            LookupError: there is no lease.
        """
        head = self._head()
        if head is None:
            raise LookupError("there is no lease")
        return head[1], self.messages.pop(head[1])

    def _head(self) -> tuple[int, int] | None:
        messages, runs, late = self.messages, self._runs, self._late
        while runs and not self._trim(runs[0]):
            runs.popleft()
        while late:
            message = messages.get(late[0][1])
            if message is not None and message.due_us == late[0][0]:
                break
            heappop(late)
        if not runs:
            return late[0] if late else None
        first = (runs[0][0], runs[0][1])
        return min(first, late[0]) if late else first

    def _trim(self, run: list[int]) -> bool:
        """Advance the run to its first live lease; False if there is none."""
        messages = self.messages
        deadline, number, last = run
        while number <= last:
            message = messages.get(number)
            if message is not None and message.due_us == deadline:
                run[1] = number
                return True
            number += 1
        return False

    def _sweep_if_worn(self) -> None:
        if len(self._runs) + len(self._late) <= 2 * len(self.messages) + _SWEEP_MIN:
            return
        self._runs = deque(run for run in self._runs if self._trim(run))
        messages = self.messages
        self._late = [
            entry for entry in set(self._late) if entry[1] in messages and messages[entry[1]].due_us == entry[0]
        ]
        heapify(self._late)
