"""One queue: messages ready, delayed and leased, and the accumulation window.

Messages are handed out in order of their due time. Three structures hold them: ``ready`` is a deque, because fresh and nacked
messages become due at the moment they enter; ``delayed`` is a heap for those that become due later or return to an old
place; ``leases`` holds what is delivered, which comes back at its deadline.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from .commands import Delivered, PushFlag
from .expiry import NEVER
from .lease import LeaseTable
from .message import COMPOUND_BYTES_MAX, Message, Meta, Part, content_bytes, content_count, part_bytes
from .past_deliveries import Ending, PastDeliveries
from .properties import Settings
from .queue_counters import QueueCounters
from .stock import Stock, property_bytes

if TYPE_CHECKING:
    from .pre_images import PreImages

__all__ = ["DROPS_MAX", "REPEATS_MAX", "Queue"]

DROPS_MAX = 10_000
"""Most exhausted messages that one pull passes over, so that no command takes long."""


REPEATS_MAX = 10_000
"""Most deliveries of a pull that may get the same message again and again, because they expire at once."""


class Watcher(Protocol):
    """Something that has to know when the queue's earliest due time may have fallen."""

    def note(self, queue: Queue) -> None:
        """It may have fallen."""

    def remove(self, queue: Queue) -> None:
        """The queue is gone."""


class Queue(QueueCounters):
    """A named queue. All methods are deterministic and cost O(1), or O(log n) for messages out of order.

    Attributes:
        own: properties set on the queue itself.
        owner: to whose quota it counts.
        idle_us: log time of the last pull if the queue ends unless it is used, else 0; see `IdleQueues`.
        settings: effective properties; kept up to date by the machine.
        revision: the machine's revision when it last looked after the queue.
        rules_revision: revision of the default rules that `settings` reflects.
        stock: sums over all queues, to which this one adds its own.
        views: the pattern views that list this queue; they must be told when its earliest due time falls.
        bodies, body_bytes: how many messages were pushed for what is here, and bytes of their bodies.
        pre_images: where messages go before they change, while a snapshot view needs them.
        watched_us: when it is looked at next for leases that have ended; not later than the first deadline.
        suspended: whether nothing is handed out for the time being; everything else goes on.

    The counters are those of `QueueCounters`.
    """

    __slots__ = (
        "_window_bytes",
        "bodies",
        "body_bytes",
        "delayed",
        "endings",
        "idle_us",
        "leases",
        "name",
        "own",
        "owner",
        "pre_images",
        "ready",
        "revision",
        "rules_revision",
        "settings",
        "stock",
        "suspended",
        "views",
        "watched_us",
        "window",
    )

    def __init__(self, name: bytes, settings: Settings, endings: PastDeliveries, stock: Stock) -> None:
        super().__init__()
        self.name = name
        self.own: dict[str, Any] = {}
        self.owner = b""
        self.idle_us = 0
        self.settings = settings
        self.revision = 0
        self.rules_revision = 0
        self.stock = stock
        self.views: list[Watcher] = []
        self.ready: deque[Message] = deque()
        self.delayed: list[tuple[int, int, Message]] = []
        self.leases = LeaseTable()
        self.endings = endings
        self.window: Message | None = None
        self.bodies = 0
        self._window_bytes = 0
        self.body_bytes = 0
        self.pre_images: PreImages | None = None
        self.suspended = False
        self.watched_us = NEVER

    def __len__(self) -> int:
        return len(self.ready) + len(self.delayed) + len(self.leases.messages)

    def head_us(self) -> int | None:
        """When a pull can find the next message, one whose lease ends included; None if the queue is empty or suspended."""
        return None if self.suspended else self.earliest_us()

    def earliest_us(self) -> int | None:
        """The earliest due time of all messages, leased ones included, or None if the queue is empty."""
        other = self._other_us()
        if self.ready and (other is None or self.ready[0].due_us < other):
            return self.ready[0].due_us
        return other

    def _other_us(self) -> int | None:
        """The earliest due time among delayed and leased messages."""
        lease_us = self.leases.head_us() if self.leases.messages else None
        if not self.delayed:
            return lease_us
        delayed_us = self.delayed[0][0]
        return delayed_us if lease_us is None or delayed_us <= lease_us else lease_us

    def push(
        self, now_us: int, sequence: int, meta: Meta, contents: list[bytes], *, bounds_windows: bool = True
    ) -> list[int]:
        """Store bodies that share one meta, numbered from `sequence`; returns a flag for each.

        A window that has no room for another body is joined no more, and the next one is opened; not so, without
        `bounds_windows`, in machine version 1.
        """
        stock, count, size = self.stock, len(contents), sum(map(len, contents))
        self.pushed_total += count
        self.bodies += count
        self.body_bytes += size
        stock.messages += count
        stock.body_bytes += size
        if self.settings.accum_us:
            bytes_max = COMPOUND_BYTES_MAX if bounds_windows else sys.maxsize
            return [
                self._accumulate(now_us, sequence + i, Part(*meta, content), bytes_max)
                for i, content in enumerate(contents)
            ]
        deliveries = self.settings.deliveries
        self.ready.extend(
            [Message(number, now_us, deliveries, meta, content) for number, content in enumerate(contents, sequence)]
        )
        return [0] * count

    def _accumulate(self, now_us: int, sequence: int, part: Part, bytes_max: int) -> int:
        window = self.window
        size = part_bytes(part)
        if (
            window is not None
            and window.due_us > now_us
            and isinstance(window.content, list)
            and self._window_bytes + size <= bytes_max
        ):
            window.content.append(part)
            self._window_bytes += size
            return PushFlag.WINDOW_JOINED
        due_us = now_us + self.settings.accum_us
        opened = Message(sequence, due_us, self.settings.deliveries, (None, ()), [part])
        heappush(self.delayed, (due_us, sequence, opened))
        self.reopen_window(opened)
        return PushFlag.WINDOW_OPENED

    def reopen_window(self, message: Message) -> None:
        """Let further bodies join a compound message that is not due yet."""
        self.window = message
        self._window_bytes = sum(map(part_bytes, message.content)) if isinstance(message.content, list) else 0

    def pull(self, now_us: int, count: int, last_number: int) -> list[Delivered]:
        """Lease up to `count` due messages under the numbers after `last_number`, earliest due time first.

        Exhausted messages met on the way are dropped, at most `DROPS_MAX` of them; `dropped_total` tells whether that ended
        the pull.
        """
        deadline_us = now_us + self.settings.timeout_us
        if deadline_us <= now_us:
            return self._pull_instantly_expiring(now_us, count, last_number, deadline_us)
        return self.lease(now_us, count, last_number, deadline_us)

    def lease(self, now_us: int, count: int, last_number: int, deadline_us: int, charge: int = 1) -> list[Delivered]:
        """As `pull`, but until `deadline_us`, which must be later than now, and using up `charge` deliveries of each."""
        due = self._due(now_us, count)
        if not due:
            return []
        if self.pre_images is not None:
            self.pre_images.keep(due)
        name, number = self.name, last_number
        delivered: list[Delivered] = []
        for message in due:
            number += 1
            message.remaining -= charge
            message.ready_us = message.due_us
            message.due_us = deadline_us
            delivered.append((name, number, message.remaining, message))
        self.pulled_total += len(due)
        self.leases.add(deadline_us, last_number + 1, due)
        return delivered

    def _pull_instantly_expiring(self, now_us: int, count: int, last_number: int, deadline_us: int) -> list[Delivered]:
        # With a timeout of 0 or less a delivery is due again at once and may be delivered again by the same pull.
        delivered: list[Delivered] = []
        while len(delivered) < min(count, REPEATS_MAX):
            taken = self._due(now_us, 1)
            if not taken:
                break
            if self.pre_images is not None:
                self.pre_images.keep(taken)
            message = taken[0]
            message.remaining -= 1
            message.ready_us = message.due_us
            message.due_us = deadline_us
            number = last_number + 1 + len(delivered)
            self.leases.add(deadline_us, number, taken)
            delivered.append((self.name, number, message.remaining, message))
        self.pulled_total += len(delivered)
        return delivered

    def _due(self, now_us: int, count: int) -> list[Message]:
        """Remove up to `count` deliverable messages from ready, delayed and expired leases; none if suspended."""
        ready = self.ready
        taken: list[Message] = []
        if self.suspended:
            return taken
        drops = 0
        other = self._other_us()
        while len(taken) < count:
            if ready and (other is None or ready[0].due_us < other):
                message = ready.popleft()
            elif other is not None and other <= now_us:
                message = self._pop_other()
                other = self._other_us()
            else:
                break
            if message.remaining > 0:
                taken.append(message)
                continue
            self._drop(message)
            drops += 1
            if drops == DROPS_MAX:
                break
        return taken

    def _pop_other(self) -> Message:
        if self._is_delayed_first():
            return self._pop_delayed()
        message = self._pop_expired()
        if message.remaining > 0:
            self.redelivered_total += 1
        return message

    def _is_delayed_first(self) -> bool:
        """Whether the earliest of the delayed and leased messages is a delayed one."""
        lease_us = self.leases.head_us() if self.leases.messages else None
        return bool(self.delayed) and (lease_us is None or self.delayed[0][0] <= lease_us)

    def _pop_delayed(self) -> Message:
        message = heappop(self.delayed)[2]
        if message is self.window:
            self.window = None
        return message

    def _pop_expired(self) -> Message:
        number, message = self.leases.pop_head()
        self.endings.note(number, Ending.EXPIRED)
        return message

    def withdraw(self, now_us: int, count: int, *, also_delayed: bool) -> list[Message]:
        """Remove up to `count` messages that nobody holds, in the order in which they would be delivered.

        These are the ready ones, those whose leases have ended, and, if wanted, behind them the delayed ones with an open
        accumulation window. Suspended or not makes no difference, nor do deliveries that are used up.
        """
        ready = self.ready
        taken: list[Message] = []
        other = self._other_us()
        while len(taken) < count:
            if ready and (other is None or ready[0].due_us < other):
                taken.append(ready.popleft())
            elif other is not None and other <= now_us:
                taken.append(self._pop_delayed() if self._is_delayed_first() else self._pop_expired())
                other = self._other_us()
            elif also_delayed and self.delayed:
                taken.append(self._pop_delayed())
            else:
                break
        for message in taken:
            self._let_go(message)
        return taken

    def _let_go(self, message: Message) -> None:
        self._count(-content_count(message.content), -content_bytes(message.content))

    def count(self, contents: Iterable[bytes | list[Part]]) -> None:
        """Add bodies to the sums that have come otherwise than by a push."""
        for content in contents:
            self._count(content_count(content), content_bytes(content))

    def count_plain(self, bodies: list[bytes]) -> None:
        """As `count`, if none is compound."""
        self._count(len(bodies), sum(map(len, bodies)))

    def _count(self, bodies: int, body_bytes: int) -> None:
        stock = self.stock
        self.bodies += bodies
        self.body_bytes += body_bytes
        stock.messages += bodies
        stock.body_bytes += body_bytes

    def uncount(self) -> None:
        """Take what the queue holds out of the sums, because it is deleted."""
        self.stock.messages -= self.bodies
        self.stock.body_bytes -= self.body_bytes
        self.stock.property_bytes -= property_bytes(self.own)

    def set_own(self, own: dict[str, Any]) -> None:
        """Replace the queue's own properties; `settings` is the machine's business."""
        self.stock.property_bytes += property_bytes(own) - property_bytes(self.own)
        self.own = own

    def append(self, now_us: int, sequence: int, messages: list[Message]) -> None:
        """Take messages of another queue as if they had been stored now, numbered from `sequence`.

        Each stays what it is: neither accumulated nor, if it is a compound message, taken apart.
        """
        deliveries = self.settings.deliveries
        self.ready.extend(
            [
                Message(number, now_us, deliveries, message.meta, message.content)
                for number, message in enumerate(messages, sequence)
            ]
        )
        self.count(message.content for message in messages)
        self.moved_in_total += len(messages)

    def ack(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Settle leases: the messages are gone. False for a number without a live lease."""
        leased = self.leases.messages
        results: list[bool] = []
        settled = bodies = body_bytes = 0
        for number in numbers:
            message = leased.get(number)
            if message is None or message.due_us <= now_us:
                results.append(False)
                continue
            del leased[number]
            settled += 1
            content = message.content
            if isinstance(content, bytes):
                bodies += 1
                body_bytes += len(content)
            else:
                bodies += len(content)
                body_bytes += content_bytes(content)
            results.append(True)
        if not leased:
            self.leases.forget_order()
        self.acked_total += settled
        self._count(-bodies, -body_bytes)
        return results

    def end_leases(self, now_us: int, limit: int | None) -> int:
        """End up to `limit` leases (None: all) whose deadline has come; returns how many.

        The messages can be pulled since that deadline; those without deliveries left are dropped.
        """
        leases = self.leases
        ended = 0
        while leases.messages and ended != limit:
            head_us = leases.head_us()
            if head_us is None or head_us > now_us:
                break
            message = self._pop_expired()
            ended += 1
            if message.remaining > 0:
                if self.pre_images is not None:
                    self.pre_images.keep((message,))
                message.ready_us = message.due_us
                heappush(self.delayed, (message.due_us, message.sequence, message))
                self.redelivered_total += 1
            else:
                self._drop(message)
        return ended

    def _drop(self, message: Message) -> None:
        self._let_go(message)
        self.dropped_total += 1

    def nack_or_drop(self, now_us: int, numbers: list[int]) -> list[bool]:
        """As `nack`, but a message without deliveries left is dropped."""
        results = self.nack(now_us, numbers)
        # Those that were given back stand at the end of the line.
        back = [self.ready.pop() for _ in range(sum(results))]
        for message in reversed(back):
            if message.remaining > 0:
                self.ready.append(message)
            else:
                self._drop(message)
        return results

    def nack(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Give messages back: they go behind everything waiting, and the delivery stays charged."""
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            message = self._live(number, now_us)
            if message is not None:
                del self.leases.messages[number]
                self.endings.note(number, Ending.NACKED)
                message.due_us = message.ready_us = now_us
                self.ready.append(message)
                self.nacked_total += 1
            results.append(message is not None)
        return results

    def put_back(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Undo deliveries that reached nobody: the messages return to their old place, uncharged."""
        return self._put_back(now_us, numbers, 1)

    def put_back_uncharged(self, now_us: int, numbers: list[int]) -> list[bool]:
        """As `put_back`, for deliveries that used up nothing."""
        return self._put_back(now_us, numbers, 0)

    def _put_back(self, now_us: int, numbers: list[int], refund: int) -> list[bool]:
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            message = self._live(number, now_us)
            if message is not None:
                del self.leases.messages[number]
                self.endings.note(number, Ending.PUT_BACK)
                message.due_us = message.ready_us
                message.remaining += refund
                heappush(self.delayed, (message.due_us, message.sequence, message))
            results.append(message is not None)
        return results

    def extend(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Let leases end a full timeout from now."""
        deadline_us = now_us + self.settings.timeout_us
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            live = self._live(number, now_us) is not None
            if live:
                self.leases.reschedule(number, deadline_us)
            results.append(live)
        return results

    def renew(self, now_us: int, first: int, count: int, deadline_us: int) -> None:
        """Let the leases under `count` consecutive numbers end at `deadline_us`."""
        self._keep_pre_images(range(first, first + count))
        self.leases.reschedule_live(now_us, first, count, deadline_us)

    def _live(self, number: int, now_us: int) -> Message | None:
        message = self.leases.messages.get(number)
        return message if message is not None and message.due_us > now_us else None

    def _keep_pre_images(self, numbers: Iterable[int]) -> None:
        if self.pre_images is not None:
            self.pre_images.keep_leased(self.leases.messages, numbers)
