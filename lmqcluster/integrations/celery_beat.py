"""Celery beat with the cluster as its store: ``celery beat -S lmqcluster.integrations.celery_beat:Scheduler``.

Beat stores the entries of ``beat_schedule`` as schedules of the cluster and then sends nothing itself: the cluster pushes
each task at its due time, exactly once. So any number of beats has the same effect as one, and none is needed once the
entries are stored.
"""

# The base classes are not typed.
# mypy: disable-error-code="misc"

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from celery import beat
from celery.exceptions import ImproperlyConfigured
from celery.schedules import crontab, schedule
from kombu.utils.json import dumps

from lmqcluster.wire.errors import LmqError

from .kombu import EXPIRES_ATTRIBUTE, Transport, push_options

if TYPE_CHECKING:
    from lmqcluster.client import Client, PushOptions

__all__ = ["Scheduler"]

_RETRY_S: Final = 5.0
_NAMESPACE: Final = uuid.UUID("6d3f6d34-7d5b-4c58-9c26-3d6f1f1f7c11")
_STARS: Final = re.compile(r"\*(/[0-9]+)?")
_ORIGIN: Final = "lmqcluster-schedule"


class Scheduler(beat.Scheduler):
    """Stores the entries of Celery's ``beat_schedule`` in the cluster when it starts, and removes those that it has not."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._is_stored = False
        super().__init__(*args, **options)

    def setup_schedule(self) -> None:
        """Read the entries; `tick` stores them, so that beat waits for a cluster that is not there yet."""
        self.install_default_entries(self.data)
        self.update_from_dict(self.app.conf.beat_schedule)

    def tick(self, *_: Any, **__: Any) -> float:
        """Store the entries unless that is done; return the seconds until the next call."""
        if self._is_stored:
            return float(self.max_interval)
        try:
            self.store()
        except (LmqError, *Transport.connection_errors) as exc:
            self.logger.warning("beat: the cluster does not take the schedules, trying again: %s", exc)
            return _RETRY_S
        self._is_stored = True
        return float(self.max_interval)

    def store(self) -> None:
        """Make the schedules of the cluster equal to the entries.

        Raises:
            LmqError: the cluster cannot be reached, or refuses one.
            ImproperlyConfigured: the cluster has no equivalent of an entry.
        """
        with self.app.connection_for_write() as connection:
            transport = connection.transport
            if not isinstance(transport, Transport):
                raise ImproperlyConfigured("this scheduler needs a broker URL lmq://...")
            prefix = transport.stored_name("beat/")
            for entry in self.schedule.values():
                self._store_entry(transport, connection, prefix, entry)
            wanted = {prefix + name for name in self.schedule}
            for one in transport.lmq.schedules():
                if one["name"].startswith(prefix) and one["name"] not in wanted:
                    _delete(transport.lmq, one["name"])
        self.logger.info("beat: %d schedules are stored in the cluster, which sends the tasks", len(self.schedule))

    def _store_entry(self, transport: Transport, connection: Any, prefix: str, entry: Any) -> None:
        if any(isinstance(one, beat.BeatLazyFunc) for one in (*(entry.args or ()), *entry.kwargs.values())):
            raise ImproperlyConfigured(f"{entry.name}: arguments that beat computes cannot be stored")
        name = prefix + entry.name
        options = dict(entry.options)
        attributes: dict[str, Any] = {}
        delay = options.pop("countdown", None)
        if isinstance(options.get("expires"), int | float):
            attributes[EXPIRES_ATTRIBUTE] = float(options.pop("expires"))
        queue, message = self._message(connection, entry, name, options)
        given: PushOptions = push_options(message)
        given.pop("due", None)
        given["attributes"] = {"task": entry.task, **attributes}
        if attributes:
            given["ttl"] = attributes[EXPIRES_ATTRIBUTE] + float(delay or 0)
        if delay:
            given["delay"] = float(delay)
        rule = _rule(entry, self.app)
        body = dumps(message).encode()
        transport.lmq.set_schedule(name, transport.stored_name(queue), body, missed="once", **rule, **given)

    def _message(self, connection: Any, entry: Any, name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the queue and the message of an entry's task, the same in every process."""
        sent: list[tuple[str, dict[str, Any]]] = []
        channel = connection.channel()
        channel._put = lambda queue, message, **_: sent.append((queue, message))
        channel._put_fanout = lambda *_, **__: sent.extend([("", {}), ("", {})])
        producer = self.app.amqp.Producer(channel, auto_declare=False)
        task = self.app.tasks.get(entry.task)
        send = self.app.send_task if task is None else task.apply_async
        lead = (entry.task,) if task is None else ()
        send(*lead, entry.args, entry.kwargs, producer=producer, task_id=str(uuid.uuid5(_NAMESPACE, name)), **options)
        channel.close()
        if len(sent) != 1:
            raise ImproperlyConfigured(f"{entry.name}: its task must be routed to one queue")
        queue, message = sent[0]
        message["headers"]["origin"] = _ORIGIN
        message["properties"].pop("reply_to", None)
        message["properties"]["delivery_tag"] = ""
        return queue, message


def _delete(client: Client, name: str) -> None:
    try:
        client.delete_schedule(name)
    except LmqError as exc:
        # Another beat was faster.
        if exc.code != "schedule_not_found":
            raise


def _rule(entry: Any, app: Any) -> dict[str, Any]:
    """Return the rule of an entry as the client takes it.

    Raises:
        ImproperlyConfigured: the cluster has no such rule.
    """
    given = entry.schedule
    if isinstance(given, crontab):
        return {"cron": _cron(entry.name, given), "zone": str(given.tz or app.timezone)}
    if type(given) is schedule:
        interval = given.run_every.total_seconds()
        if interval >= 1:
            return {"interval": interval}
        raise ImproperlyConfigured(f"{entry.name}: the cluster's shortest interval is 1 second, not {interval}")
    raise ImproperlyConfigured(f"{entry.name}: a schedule of type {type(given).__name__} cannot be stored")


def _cron(name: str, given: Any) -> str:
    fields = (
        (given._orig_minute, given.minute, 60),
        (given._orig_hour, given.hour, 24),
        (given._orig_day_of_month, given.day_of_month, 31),
        (given._orig_month_of_year, given.month_of_year, 12),
        (given._orig_day_of_week, given.day_of_week, 7),
    )
    texts = [_field(*field) for field in fields]
    if not texts[2].startswith("*") and not texts[4].startswith("*"):
        raise ImproperlyConfigured(f"{name}: a cron expression cannot have both days of the month and days of the week")
    return " ".join(texts)


def _field(original: Any, values: set[int], most: int) -> str:
    """Return a field of a cron expression. One with a star keeps it, since it then follows changes of the clocks."""
    if isinstance(original, str) and _STARS.fullmatch(original):
        return original
    return "*" if len(values) == most else ",".join(map(str, sorted(values)))
