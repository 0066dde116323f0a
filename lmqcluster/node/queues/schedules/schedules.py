"""Schedules for protocols: setting, changing and listing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ....core import Role
from ....core.log.commands import ChangeSchedule, ScheduleAction, ScheduleResult
from ....core.log.results import PushFlag
from ....core.schedules.schedule import Schedule
from ....wire.errors import LmqError
from ..sending.command_sender import CommandSender
from ..sending.push_items import refusal_of
from .request import ScheduleRequest, check_schedule_name

if TYPE_CHECKING:
    from ...access.access import Principal

__all__ = ["PAGE_MAX", "ScheduleInfo", "Schedules"]

PAGE_MAX: Final = 1_000
_ATTEMPTS: Final = 5
_LOOKED_AT_MAX: Final = 20_000
"""Most schedules that one page visits, of which the client may see none."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule. Times are Unix times in seconds.

    Attributes:
        name, queue, owner: its name, where it pushes, and the owner to whose quota it counts.
        interval_s, cron, zone: the rule; those that it does not have are None.
        start_s, end_s, jitter_s, missed: see `ScheduleRequest`.
        paused, ended: whether it is paused; whether no due time follows.
        next_s, last_s: the next due time and that of the last message; None for none.
        pushed, missed_total, refused: messages pushed; due times missed; messages that the queue or the cluster refused.
        created_s: when it was created.
        content, content_type, packed_attributes: the message.
        options: its options: delay, ttl, priority, label and group, as far as they are set.
    """

    name: bytes
    queue: bytes
    owner: bytes
    interval_s: float | None
    cron: str | None
    zone: str | None
    start_s: float | None
    end_s: float | None
    jitter_s: float
    missed: str
    paused: bool
    ended: bool
    next_s: float | None
    last_s: float | None
    pushed: int
    missed_total: int
    refused: int
    created_s: float
    content: bytes
    content_type: bytes | None
    packed_attributes: bytes
    options: dict[str, Any]


class Schedules:
    """The operations. Every asynchronous method raises `LmqError`.

    A command names the queue that the schedule has here, for which the client's permission was checked. If another
    client changes the schedule at the same time, the check is repeated.
    """

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender

    async def set(self, request: ScheduleRequest, principal: Principal) -> str:
        """Create or replace a schedule; return ``created``, ``replaced`` or ``unchanged``.

        A schedule that is defined alike keeps its next due time, so that every process of an application may set the
        application's schedules when it starts.
        """
        request.check()
        self._sender.check_item(request.item)
        principal.require(Role.WRITE, request.queue)
        self._sender.check_name(request.queue, principal.owner)
        self._sender.check_room()

        async def attempt() -> Any:
            was = self._checked_queue(request.name, principal)
            command = request.command(self._now_us(), was, principal.owner, self._sender.due_times)
            return await self._sender.propose(command, len(command.content) + 1_024)

        return ScheduleResult(await self._repeated(attempt)).name.lower()

    async def pause(self, name: bytes, principal: Principal) -> None:
        """Stop a schedule until it is resumed. Raises ``schedule_not_found``."""
        await self._change(name, ScheduleAction.PAUSE, principal)

    async def resume(self, name: bytes, principal: Principal) -> None:
        """Continue a paused schedule; what passed in between was missed. Raises ``schedule_not_found``."""
        await self._change(name, ScheduleAction.RESUME, principal)

    async def delete(self, name: bytes, principal: Principal) -> None:
        """Delete a schedule. Raises ``schedule_not_found``."""
        await self._change(name, ScheduleAction.REMOVE, principal)

    async def run(self, name: bytes, principal: Principal) -> None:
        """Push the message of a schedule now, in addition to its due times. Raises ``schedule_not_found``, ``full``."""
        self._sender.check_room()
        flag = await self._change(name, ScheduleAction.RUN, principal)
        if flag >= PushFlag.FULL:
            raise refusal_of(flag)

    async def _change(self, name: bytes, action: ScheduleAction, principal: Principal) -> int:
        async def attempt() -> Any:
            was = self._checked_queue(name, principal)
            return await self._sender.propose(ChangeSchedule(name, action, was), 64 + len(name) + len(was))

        result: int = await self._repeated(attempt)
        return result

    async def _repeated(self, attempt: Callable[[], Any]) -> Any:
        """Carry out an attempt, again if another client was faster or this node was behind."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                return await attempt()
            except LmqError as exc:
                if exc.code not in ("conflict", "schedule_not_found") or not left:
                    raise
            await self._sender.look_up()
        raise AssertionError("the last attempt returns or raises")

    def _checked_queue(self, name: bytes, principal: Principal) -> bytes:
        """Return the queue of a schedule, empty if there is none, after the check of the permission for it."""
        found = self.find(name)
        if found is None:
            return b""
        principal.require(Role.WRITE, found.definition.queue)
        return found.definition.queue

    def find(self, name: bytes) -> Schedule | None:
        """Return a schedule of the local replica."""
        return self._sender.state().schedules.find(name)

    def _now_us(self) -> int:
        schedules = self._sender.state().schedules
        if schedules.ahead_us is None:
            raise LmqError("no_leader", "the cluster has not set the clock of its schedules yet; try again")
        return schedules.unix_us()

    # --- reading --------------------------------------------------------------------------------------------------

    def show(self, name: bytes, principal: Principal) -> ScheduleInfo:
        """Return a schedule of the local replica.

        Raises:
            LmqError: ``schedule_not_found``, ``forbidden``.
        """
        found = self.find(check_schedule_name(name))
        if found is None:
            raise LmqError("schedule_not_found", f"there is no schedule {name.decode()!r}")
        principal.require(Role.READ, found.definition.queue)
        return _info(found)

    def total(self) -> int:
        """Return the number of all schedules."""
        return len(self._sender.state().schedules)

    def page(self, principal: Principal, after: bytes, limit: int) -> tuple[list[ScheduleInfo], bytes | None]:
        """Return schedules of the local replica that the client may see, by name, and the name after which the next page begins.

        The second value is None on the last page. A page may have fewer schedules than `limit`, or none.
        """
        found: list[ScheduleInfo] = []
        looked = 0
        for one in islice(self._from(after), _LOOKED_AT_MAX):
            if len(found) == limit:
                return found, after
            looked += 1
            after = one.name
            if principal.covers(one.definition.queue):
                found.append(_info(one))
        return found, after if looked == _LOOKED_AT_MAX else None

    def _from(self, after: bytes) -> Iterator[Schedule]:
        schedules = self._sender.state().schedules
        while (found := schedules.behind(after)) is not None:
            yield found
            after = found.name


def _info(schedule: Schedule) -> ScheduleInfo:
    definition = schedule.definition
    timing, item, push = definition.timing, definition.item, definition.push
    options = {
        "delay": push.delay_us / 1e6 if push.delay_us >= 0 else None,
        "ttl": push.ttl_us / 1e6 or None,
        "priority": push.priority or None,
        "label": push.label or None,
        "group": push.group or None,
    }
    return ScheduleInfo(
        name=schedule.name,
        queue=definition.queue,
        owner=schedule.owner,
        interval_s=timing.interval_us / 1e6 or None,
        cron=timing.cron.decode() or None,
        zone=timing.zone.decode() or None,
        start_s=_seconds(timing.start_us),
        end_s=_seconds(timing.end_us),
        jitter_s=timing.jitter_us / 1e6,
        missed="once" if timing.once else "skip",
        paused=schedule.paused,
        ended=schedule.done and not schedule.times and not schedule.owed_us,
        next_s=_seconds(schedule.times[0]) if schedule.times else None,
        last_s=_seconds(schedule.last_us),
        pushed=schedule.pushed,
        missed_total=schedule.missed,
        refused=schedule.refused,
        created_s=schedule.created_us / 1e6,
        content=item.content,
        content_type=item.content_type,
        packed_attributes=item.attributes,
        options={name: value for name, value in options.items() if value is not None},
    )


def _seconds(unix_us: int) -> float | None:
    return unix_us / 1e6 if unix_us else None
