"""The state that replicas agree on: the queues, and what is remembered of clients and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from ..dedup.attempts import Attempts
from ..dedup.keys import IdempotencyKeys
from ..dedup.node_sequences import NodeSequences
from ..dedup.producers import Producers
from ..dedup.stream_positions import StreamPositions
from ..log.commands import Ack, Compile, Nack
from ..log.notices import Notice
from ..messages.message import Meta
from ..messages.totals import Totals, property_bytes
from ..owners.api_keys import ApiKeys
from ..owners.quotas import Kind, Quotas
from ..owners.tokens import Tokens
from ..queue.annotations import NO_ANNOTATIONS, Annotations
from ..queue.counters import COUNTERS
from ..queue.expiry import Expiry, Limited
from ..queue.limits import PollLimits
from ..queue.message_index import MessageIndex
from ..queue.pager import Pager
from ..queue.properties import SYSTEM_DEFAULTS, Settings, effective, inheritable, settings_of
from ..queue.queue import Queue
from ..queue.settlement_history import Settlement, SettlementHistory
from ..routing.admission import PLAIN_PUSH, Admission, Push
from ..routing.bindings import Bindings
from ..routing.dead_lettering import DeadLetterRouter
from ..routing.move_tasks import MOVED_MAX, MoveTasks
from ..routing.waiting_pushes import WaitingPushes
from ..schedules.table import STEPS_MAX, Schedules
from ..sessions.exclusive_queues import ExclusiveQueues
from ..sessions.locks import Locks
from ..sessions.sessions import END_STEPS, Sessions
from ..timers.idle_queues import IdleQueues
from ..timers.lease_expiry import LeaseExpiry
from ..timers.message_timers import RichTimers
from .batch_leases import BatchLeases
from .default_rules import SPREAD_STEPS, DefaultRules
from .deliveries import Deliveries
from .hooked_names import HookedNames
from .sorted_names import SortedNames
from .times_of_day import TimesOfDay

__all__ = ["ATTEMPT_US", "RECEIVED_MAX", "REMEMBER_US", "SENT_MAX", "OpenView", "State"]

REMEMBER_US = 600 * 1_000_000
"""How long producers and idempotency keys are remembered: twice what the contract promises."""

ATTEMPT_US = 300 * 1_000_000
"""How long the attempt of a push is remembered: an SDK that waits for a new leader may repeat a call for minutes."""
SENT_MAX = 100_000
"""Most pushes under attempts that are remembered of one owner, the latest."""
RECEIVED_MAX = 100_000
"""Most deliveries of polls under attempts that are remembered of one owner, the latest."""
NAME_BYTES_MAX = 255
_PLAIN = settings_of(SYSTEM_DEFAULTS)


class OpenView(Protocol):
    """A snapshot view that is being read.

    Attributes:
        revision: queues with a lower one have not been touched since the view was opened.
    """

    revision: int

    def freeze(self, queue: Queue) -> None:
        """Save the state of the queue before a command changes it."""


class State:
    """The state that replicas agree on and that a snapshot holds.

    Attributes:
        version: the machine version, which selects the semantics of commands; raised once the programs of all members
            support it.
        now_us: log time; never falls.
        queues: by name.
        names: the queues' names in order.
        totals: totals over all queues.
        pager: the paging state of long lines and bodies.
        defaults: the default properties.
        retired: counters of deleted queues, so that totals never fall.
        deleted_total: number of deleted queues, for any reason.
        aged_total: number of them deleted because they were too old (``max_queue_age``).
        last_delivery: number of the last delivery.
        last_sequence: number of the last message stored.
        hooked: request headers that the queues' own hooks preserve.
        tokens: the tokens that grant access to the cluster.
        quotas: usage by owner.
        endings: how deliveries ended.
        expiry: ends rows by log time.
        lease_watch: the queues whose leases expire next.
        timers: the queues whose other timers are due next.
        bindings: which queues get copies of pushes to others.
        admission: handles pushes to queues that need more than an append.
        exits: routes messages that expire or have no deliveries left.
        idle: the queues that are deleted when unused.
        poll_limits: limits of polls of all queues together.
        ready: queues that may have gained messages with the current batch.
        created, deleted: queues that the current batch created and deleted.
        notices: results of the current batch for waiting clients other than pulls.
        sessions: the sessions and the state that ends with them.
        claims: whose turn it is at exclusive queues.
        locks: the holders of locks.
        waiting_pushes: pushes that wait for room.
        deliveries: delivers messages and settles deliveries.
        salt: the fixed part of message ids, empty until the cluster is founded.
        node_sequences: the last applied batch of each node.
        producers, keys, marks: which pushes have been stored.
        sent: flags and sequences of messages that were pushed under attempts.
        received: delivery numbers of polls under attempts.
        batches: batch leases.
        api_keys: keys for clients that know no tokens.
        times: the time of day by log time.
        schedules: messages that are pushed at given times.
        move_tasks: tasks that move messages at a rate.
    """

    VERSION_MAX: ClassVar = 1
    """The highest machine version that this program understands."""
    REMEMBER_US: ClassVar = REMEMBER_US

    def __init__(self, compile_pattern: Compile) -> None:
        self.compile = compile_pattern
        self.version = 1
        self.now_us = self.last_delivery = self.last_sequence = 0
        self.queues: dict[bytes, Queue] = {}
        self.names = SortedNames()
        self.totals = Totals()
        self.pager = Pager(self.totals)
        self.hooked = HookedNames()
        self.retired: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.deleted_total = self.aged_total = 0
        self.quotas = Quotas()
        self.tokens = Tokens(compile_pattern, self.quotas)
        self.endings = SettlementHistory()
        self.expiry = Expiry()
        self.lease_watch = LeaseExpiry(self)
        self.timers = RichTimers(self)
        self.bindings = Bindings()
        self.admission = Admission(self, self.bindings)
        self.exits = DeadLetterRouter(self, self.admission)
        self.keys = IdempotencyKeys(REMEMBER_US, self.quotas)
        self.idle = IdleQueues(self, self.keys)
        self.poll_limits = PollLimits()
        self.ready: list[Queue] = []
        self.created: list[Queue] = []
        self.deleted: list[Queue] = []
        self.notices: list[Notice] = []
        self.claims = ExclusiveQueues(self)
        self.locks = Locks(self)
        self.sessions = Sessions(self, self.claims, self.locks)
        self.waiting_pushes = WaitingPushes(self)
        self.defaults = DefaultRules(self, self.names)
        self.view: OpenView | None = None
        # Grows with every snapshot view: a queue with another one has not been touched since the view was opened.
        self.revision = 0
        self.deliveries = Deliveries(self, self.lease_watch, self.idle)
        self.salt = b""
        self.node_sequences = NodeSequences()
        self.sent = Attempts(self.quotas, SENT_MAX)
        self.received = Attempts(self.quotas, RECEIVED_MAX)
        self.producers = Producers(REMEMBER_US, self.quotas)
        self.marks = StreamPositions(self.quotas)
        self.batches = BatchLeases(self, self.deliveries, self.endings, self.lease_watch, self.idle)
        self.api_keys = ApiKeys()
        self.times = TimesOfDay()
        self.schedules = Schedules(self, self.admission.reach)
        self.move_tasks = MoveTasks(self, self.exits)
        self.expiry.watch(self._sources())

    def _sources(self) -> list[Limited]:
        """Return the tables whose rows expire by log time, and the most rows of each that one batch ends."""
        return [
            Limited(self.defaults, SPREAD_STEPS),
            Limited(self.lease_watch, 1_000),
            Limited(self.timers, 1_000),
            Limited(self.keys, 2_000),
            Limited(self.keys.exact, 2_000),
            Limited(self.sent, 2_000),
            Limited(self.received, 2_000),
            Limited(self.producers, 2_000),
            Limited(self.marks, 10),
            Limited(self.batches, 100),
            Limited(self.idle, 100),
            Limited(self.sessions, END_STEPS),
            Limited(self.waiting_pushes, 1_000),
            Limited(self.schedules, STEPS_MAX),
            Limited(self.move_tasks, MOVED_MAX),
        ]

    # --- queues ---------------------------------------------------------------------------------------------------

    def queue(self, name: bytes) -> Queue:
        """Return the queue of that name for modification; create it if needed."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.create(name)
        elif queue.revision != self.revision:
            self._keep_for_view(queue)
        return queue

    def create(self, name: bytes, owner: bytes = b"") -> Queue:
        """Create a queue, which must not exist.

        Raises:
            ValueError: the name is not 1 to 255 bytes.
            RefusedError: ``quota_exceeded``. Without tokens, the nodes bound the number of all queues instead.
        """
        if owner or len(self.tokens):
            self.quotas.check(Kind.QUEUES, owner)
        return self.add(name, owner)

    def add(self, name: bytes, owner: bytes) -> Queue:
        """Create a queue, regardless of the owner's quota.

        Raises:
            ValueError: the name is not 1 to 255 bytes.
        """
        if type(name) is not bytes or not 0 < len(name) <= NAME_BYTES_MAX:
            raise ValueError("a queue name must have 1 to 255 bytes")
        # Most queues begin with equal settings and share one object. In a snapshot, the binding of a child may
        # precede it.
        settings = self._settings({}, name) if self.defaults or self.bindings.parent(name) else _PLAIN
        queue = Queue(name, settings, self.endings, self.totals, self.pager, self.exits)
        queue.owner = owner
        queue.created_us = queue.changed_us = self.now_us
        self.quotas.take(Kind.QUEUES, owner)
        queue.revision = self.revision
        self.queues[name] = queue
        self._note_special(queue)
        self.names.add(name)
        self.created.append(queue)
        return queue

    def touched(self, queue: Queue) -> Queue:
        """Return the queue for modification. Commands change only queues that come from here, `queue` or `existing`."""
        if queue.revision != self.revision:
            self._keep_for_view(queue)
        return queue

    def _keep_for_view(self, queue: Queue) -> None:
        """Save a queue for the open snapshot view, if there is one, before its first change."""
        if self.view is not None:
            self.view.freeze(queue)
        queue.revision = self.revision

    def refresh(self, queue: Queue) -> None:
        """Recompute the effective properties of the queue and of its children."""
        self.resolve(queue)
        self._refresh_children(queue.name)

    def _refresh_children(self, name: bytes) -> None:
        for one in self.bindings.children(name):
            child = self.queues.get(one)
            if child is not None:
                self.resolve(child)

    def resolve(self, queue: Queue) -> None:
        """Recompute the effective properties of a queue."""
        before = queue.settings.options
        self.touched(queue).configure(self._settings(queue.own, queue.name))
        self._note_special(queue)
        if before is not None and before != queue.settings.options:
            # Messages may be due earlier, because the queue was exclusive or a limit held them back.
            self.note_due(queue)
        self.hooked.note(queue.name, queue.settings.preserved if "hooks" in queue.own else ())

    def _note_special(self, queue: Queue) -> None:
        """Update whether pushes to the queue need more than an append, and its timers."""
        has_index = queue.store.rich is not None and queue.store.rich.index is not None
        queue.special = queue.settings.options is not None or has_index or bool(self.bindings.targets(queue.name))
        if queue.special or queue.store.rich is not None:
            queue.store.enriched()
            self.timers.note(queue)
        if queue.pushes_waiting:
            self.note_room(queue)

    def index_messages(self, queue: Queue) -> Queue:
        """Index the messages that arrive in the queue from now on by id."""
        rich = queue.store.enriched()
        if rich.index is None:
            rich.index = MessageIndex(self.last_sequence)
            self._note_special(queue)
        return queue

    def bind(self, source: Queue, target: Queue) -> bool:
        """Copy pushes to one queue into another from now on; False if they are bound already.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        bound = self.bindings.bind(source.name, target.name)
        self._note_special(source)
        self.resolve(target)
        return bound

    def unbind(self, source: bytes, target: bytes) -> bool:
        """Remove a binding; False if there is none."""
        ended = self.bindings.unbind(source, target)
        self._unbound([source])
        bound = self.queues.get(target)
        if bound is not None:
            self.resolve(bound)
        return ended

    def _unbound(self, sources: list[bytes]) -> None:
        for name in sources:
            source = self.existing(name)
            if source is not None:
                self._note_special(source)

    def _settings(self, own: Mapping[str, Any], name: bytes) -> Settings:
        settings = settings_of(effective(own, self.defaults.of(name), self._inherited(name)))
        if settings.deliveries < 1:
            # Protocols refuse a negative retry. One that the log has anyway must not drop every push.
            return settings._replace(deliveries=1)
        return settings

    def _inherited(self, name: bytes) -> Mapping[str, Any]:
        parent = self.bindings.parent(name)
        queue = None if parent is None else self.queues.get(parent)
        return {} if queue is None else inheritable(queue.own)

    def existing(self, name: bytes) -> Queue | None:
        """Return the queue of that name for modification, None if there is none."""
        queue = self.queues.get(name)
        if queue is not None and queue.revision != self.revision:
            self._keep_for_view(queue)
        return queue

    def set_own(self, queue: Queue, own: dict[str, Any]) -> None:
        """Replace a queue's own properties; `refresh` must follow."""
        self._count_properties(queue.owner, property_bytes(own) - property_bytes(queue.own))
        queue.set_own(own)

    def annotate(self, queue: Queue, annotations: Annotations) -> None:
        """Replace a queue's annotations."""
        self._count_properties(queue.owner, property_bytes(annotations) - property_bytes(queue.annotations))
        queue.annotate(annotations)

    def _count_properties(self, owner: bytes, more: int) -> None:
        if more > 0:
            self.quotas.take(Kind.PROPERTY_BYTES, owner, more)
        elif more < 0:
            self.quotas.give(Kind.PROPERTY_BYTES, owner, -more)

    def delete(self, name: bytes) -> bool:
        """Delete a queue with its contents; return whether it existed."""
        queue = self.existing(name)
        if queue is not None:
            del self.queues[name]
            self.names.remove(name)
            self.set_own(queue, {})
            self.annotate(queue, NO_ANNOTATIONS)
            queue.store.uncount()
            self.quotas.give(Kind.QUEUES, queue.owner)
            self.idle.deleted(queue)
            self.lease_watch.deleted(queue)
            self.timers.deleted(queue)
            self._unbound(self.bindings.deleted(name))
            self._refresh_children(name)
            self.waiting_pushes.deleted(name)
            self.move_tasks.deleted(name)
            self.forget_keys(name)
            self.deleted.append(queue)
            self.hooked.note(name, ())
            for counter in COUNTERS:
                self.retired[counter] += getattr(queue.counters, counter)
            self.deleted_total += 1
        return queue is not None

    def forget_keys(self, name: bytes) -> None:
        """Forget the exact keys of a queue."""
        if name in self.keys.exact:
            self.keys.exact.forget(name)
            self.expiry.at(0)

    def view_closed(self, view: OpenView) -> None:
        """Forget a view that was closed."""
        if self.view is view:
            self.view = None

    # --- messages -------------------------------------------------------------------------------------------------

    def store(self, queue: Queue, meta: Meta, contents: list[bytes], push: Push = PLAIN_PUSH) -> list[int]:
        """Store bodies that share one meta in a queue; return a flag for each.

        Bodies that exceed a limit of the queue are flagged and not stored.
        """
        if (queue.special or push is not PLAIN_PUSH) and not self.admission.appends(queue, contents, push):
            return self.admission.store(queue, meta, contents, push)
        flags = queue.push(self.now_us, self.last_sequence + 1, meta, contents)
        self.last_sequence += len(contents)
        self.note_due(queue)
        return flags

    def note_due(self, queue: Queue) -> None:
        """Report that messages of the queue may be due earlier than before."""
        if not self.ready or self.ready[-1] is not queue:
            self.ready.append(queue)
        if queue.store.rich is not None:
            self.timers.note(queue)

    def note_room(self, queue: Queue) -> None:
        """Report that the queue may have room for waiting pushes."""
        self.waiting_pushes.note(queue.name)

    # --- reading --------------------------------------------------------------------------------------------------

    def properties(self, name: bytes) -> dict[str, Any]:
        """Return effective properties of a queue, which need not exist: accum (ms), hooks if set, retry, timeout (s)."""
        return effective(self._own(name), self.defaults.of(name), self._inherited(name))

    def is_chosen(self, name: bytes, key: str) -> bool:
        """Return whether a property of a queue is set on itself, its parent or by a default rule."""
        return any(key in chosen for chosen in (self._own(name), self._inherited(name), self.defaults.of(name)))

    def is_repeated(self, command: Ack | Nack, number: int) -> bool | None:
        """Return whether a command that finds no lease under this number repeats one that ended the delivery.

        Returns:
            None if the ending is forgotten.
        """
        queue = self.queues.get(command.queue)
        if not 0 < number <= self.last_delivery or (queue is not None and number in queue.store.leases.messages):
            return False
        ending = self.endings.find(number)
        if ending is None and number <= self.endings.floor:
            return None
        if isinstance(command, Ack):
            return ending is None
        return ending == (Settlement.PUT_BACK if command.undoes else Settlement.NACKED)

    def _own(self, name: bytes) -> Mapping[str, Any]:
        queue = self.queues.get(name)
        # An empty queue is false.
        return {} if queue is None else queue.own
