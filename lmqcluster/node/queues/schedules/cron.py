"""Due times of cron expressions in time zones, with defined results when the clocks of a zone change.

cronsim reads an expression and lists the local times that match it. This module decides at which moments a zone shows
these local times:

- A rule for a fixed time of day, whose minute and hour fields do not begin with ``*``, has each local time once. A time
  that the clocks skip comes at the moment of the change, one that they show twice comes the first time.
- Any other rule follows the clocks: times that they skip do not come, times that they show twice come twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ....wire.errors import LmqError

__all__ = ["CRON_BYTES_MAX", "ZONE_BYTES_MAX", "CronRule", "cron_rule"]

CRON_BYTES_MAX: Final = 255
ZONE_BYTES_MAX: Final = 64
_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  local time
_DAY_S: Final = 86_400
_STEP_S: Final = 5 * _DAY_S
"""No zone changes its offset twice within this time and returns to the first one."""
_UNIX_S_MAX: Final = 250_000_000_000


class CronRule:
    """A cron expression in a time zone.

    Args:
        expression: five fields, or six with seconds first, or a name such as ``@daily``.
        zone: an IANA time zone, such as ``Europe/Berlin``.

    Raises:
        LmqError: ``bad_request``.
    """

    def __init__(self, expression: str, zone: str) -> None:
        text = _ALIASES.get(expression.lower(), expression)
        self._zone = _zone(zone)
        try:
            self._simulator = CronSim(text, _EPOCH)
        except CronSimError as exc:
            raise LmqError("bad_request", f"the cron expression {expression[:80]!r} is invalid: {exc}") from exc
        minute, hour = text.split()[-5:-3]
        self._is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def after(self, unix_s: int) -> int | None:
        """Return the first due time after a Unix time; None if there is none in the next 50 years."""
        try:
            return self._fixed_after(unix_s) if self._is_fixed else self._shown_after(unix_s)
        except (OverflowError, ValueError):
            # Beyond the years that the calendar knows.
            return None

    def from_after(self, unix_s: int) -> Iterator[int]:
        """Yield the due times after a Unix time."""
        due_s = self.after(unix_s)
        while due_s is not None and due_s < _UNIX_S_MAX:
            yield due_s
            due_s = self.after(due_s)

    def _fixed_after(self, unix_s: int) -> int | None:
        local_s: int | None = unix_s + self._offset_s(unix_s)
        while (local_s := self._local_after(local_s)) is not None:
            due_s = self._moment_of(local_s)
            if due_s > unix_s:
                return due_s
        return None

    def _moment_of(self, local_s: int) -> int:
        """Return the first moment at which the clocks show a local time, or at which they skip it."""
        local = (_EPOCH + timedelta(seconds=local_s)).replace(tzinfo=self._zone)
        moment_s = local_s - _seconds(local.utcoffset())
        if moment_s + self._offset_s(moment_s) == local_s:
            return moment_s
        change_s = self._change(moment_s - _DAY_S, moment_s)
        return moment_s if change_s is None else change_s

    def _shown_after(self, unix_s: int) -> int | None:
        begin_s, offset_s = unix_s, self._offset_s(unix_s)
        local_s = self._local_after(begin_s + offset_s)
        while local_s is not None:
            due_s = local_s - offset_s
            change_s = self._change(begin_s, due_s)
            if change_s is None:
                return due_s
            # The clocks change before: what they show from then on decides.
            begin_s, offset_s = change_s, self._offset_s(change_s)
            local_s = self._local_after(begin_s + offset_s - 1)
        return None

    def _local_after(self, local_s: int | None) -> int | None:
        """Return the first matching local time after another one, as seconds since 1970 by the clocks of the zone."""
        if local_s is None:
            return None
        self._simulator.dt = _EPOCH + timedelta(seconds=local_s)
        found = next(self._simulator, None)
        return None if found is None else _seconds(found - _EPOCH)

    def _offset_s(self, unix_s: int) -> int:
        """Return by how much the clocks of the zone are ahead of UTC."""
        return _seconds(datetime.fromtimestamp(unix_s, self._zone).utcoffset())

    def _change(self, begin_s: int, end_s: int) -> int | None:
        """Return the first moment after one, and up to another, at which the clocks change; None if they do not."""
        offset_s = self._offset_s(begin_s)
        while begin_s < end_s:
            reach_s = min(begin_s + _STEP_S, end_s)
            if self._offset_s(reach_s) != offset_s:
                return self._bisected(begin_s, reach_s, offset_s)
            begin_s = reach_s
        return None

    def _bisected(self, same_s: int, other_s: int, offset_s: int) -> int:
        while other_s - same_s > 1:
            middle_s = (same_s + other_s) // 2
            if self._offset_s(middle_s) == offset_s:
                same_s = middle_s
            else:
                other_s = middle_s
        return other_s


@lru_cache(maxsize=4_096)
def cron_rule(expression: str, zone: str) -> CronRule:
    """Return a rule, which is kept for the next call.

    Raises:
        LmqError: ``bad_request``.
    """
    if len(expression.encode()) > CRON_BYTES_MAX:
        raise LmqError("bad_request", f"a cron expression has at most {CRON_BYTES_MAX} bytes")
    return CronRule(expression, zone)


def _zone(name: str) -> ZoneInfo:
    reason = f"there is no time zone {name[:ZONE_BYTES_MAX]!r}"
    if len(name) > ZONE_BYTES_MAX or not name.isascii():
        raise LmqError("bad_request", reason)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as exc:
        raise LmqError("bad_request", reason) from exc


def _seconds(span: timedelta | None) -> int:
    return 0 if span is None else span.days * _DAY_S + span.seconds
