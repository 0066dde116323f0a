"""The state machine: applies batches of commands to the queues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from .batch_leases import BatchLeases
from .commands import Applied, Command, Compile, Delivered, Fault, IncompatibleVersionError, Op, RefusedError
from .expiry import Expiry, Limited
from .hooked_names import HookedNames
from .idle_queues import IdleQueues
from .key_scopes import KeyScopes
from .keyed_pushes import KeyedPushes
from .keys import IdempotencyKeys
from .lease_watch import LeaseWatch
from .marked_pushes import MarkedPushes
from .marks import Marks
from .message import Meta
from .named_queues import NamedQueues
from .operations import Operations
from .past_deliveries import Ending, PastDeliveries
from .patterns import PatternIndex, PatternView
from .pre_images import PreImages
from .producers import Producers
from .properties import SYSTEM_DEFAULTS, Rule, Settings, checked_properties, effective, settings_of
from .queue import COUNTERS, DROPS_MAX, REPEATS_MAX, Queue
from .quotas import Kind, Quotas, checked_owner
from .releases import Releases
from .sessions import BatchSessions
from .snapshot import Restoration
from .snapshot_view import SnapshotView
from .sorted_names import SortedNames
from .stock import Stock, property_bytes
from .tokens import Role, Token, TokenResult, Tokens

__all__ = ["Machine"]

NAME_BYTES_MAX = 255
SALT_BYTES = 10
NUMBERS_SKIPPED = 1 << 32
"""By a new salt: more than were ever lost at once, and few enough for 65,000 times."""
REMEMBER_US = 600 * 1_000_000
"""How long producers and idempotency keys are remembered: twice what the contract promises."""

_PLAIN = settings_of(SYSTEM_DEFAULTS)
_ENDING_BY = {Op.ACK: None, Op.NACK: Ending.NACKED, Op.PUT_BACK: Ending.PUT_BACK}
_ONLY_BYTES = {bytes}
_SEQUENCES = (list, tuple)
_INT_MAX = (1 << 63) - 1


class Machine:
    """All queues of the cluster, as one replica sees them.

    Attributes:
        version: how commands are carried out; raised when all members have a program that understands the next one.
        now_us: log time; never falls.
        queues: by name.
        names: the queues' names in order.
        stock: how much the queues hold.
        salt: the fixed part of message ids, empty until the cluster is founded.
        last_delivery: number of the last delivery.
        last_sequence: number of the last message stored.
        hooked: which headers the queues' own hooks ask to keep.
        tokens: who may use the cluster.
        quotas: what is kept for each owner.
        expiry: ends what ends by log time.
        lease_watch: the queues whose leases end next.
        idle: the queues that end if nobody uses them.
    """

    VERSION_MAX: ClassVar = 2
    """The highest machine version that this program understands."""
    REMEMBER_US: ClassVar = REMEMBER_US

    def __init__(self, compile_pattern: Compile) -> None:
        self.compile = compile_pattern
        self.version = 1
        self.now_us = 0
        self.salt = b""
        self.last_delivery = 0
        self.last_sequence = 0
        self.rules: list[Rule] = []
        self.queues: dict[bytes, Queue] = {}
        self.hooked = HookedNames()
        # Counters of deleted queues, so that totals never fall.
        self.retired: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.patterns = PatternIndex(compile_pattern, self.queues)
        self.sessions = BatchSessions()
        self.quotas = Quotas()
        self.producers = Producers(REMEMBER_US, self.quotas)
        self.keys = IdempotencyKeys(REMEMBER_US, self.quotas)
        self.key_scopes = KeyScopes(REMEMBER_US, self.quotas)
        self.marks = Marks(self.quotas)
        self.releases = Releases(self)
        self.endings = PastDeliveries()
        self.batches = BatchLeases(self)
        self.lease_watch = LeaseWatch(self)
        self.idle = IdleQueues(self)
        self.expiry = Expiry(
            [
                Limited(self.lease_watch, 1_000),
                Limited(self.keys, 2_000),
                Limited(self.key_scopes, 100),
                Limited(self.producers, 2_000),
                Limited(self.marks, 10),
                Limited(self.batches, 100),
                Limited(self.releases, 10),
                Limited(self.idle, 100),
            ]
        )
        self.tokens = Tokens(compile_pattern)
        # Grows with every change of the rules and every snapshot view: a queue with another one has to be looked after.
        self._revision = 0
        self._rules_revision = 0
        self.stock = Stock()
        self.names = SortedNames()
        self._ready: list[Queue] = []
        self._created: list[Queue] = []
        self._deleted: list[Queue] = []
        self._view: SnapshotView | None = None
        operations = Operations(self)
        pushes = KeyedPushes(self)
        marked = MarkedPushes(self)
        self.named = NamedQueues(self)
        self._handlers: dict[int, Callable[..., Any]] = {
            Op.PUSH: self._push,
            Op.PUSH_ITEMS: pushes.push_items,
            Op.PULL: self._pull,
            Op.PULL_ANY: self._pull_any,
            Op.ACK: self._ack,
            Op.NACK: self._nack,
            Op.EXTEND: self._extend,
            Op.PUT_BACK: self.put_back,
            Op.PUSH_ALL: pushes.push_all,
            Op.SET_PROPERTIES: self._set_properties,
            Op.CLEAR_PROPERTIES: self._clear_properties,
            Op.DELETE: self.delete,
            Op.SET_DEFAULTS: self._set_defaults,
            Op.BARRIER: self._barrier,
            Op.FOUND: self._found,
            Op.UPGRADE: self._upgrade,
            Op.RESERVE: self.batches.reserve,
            Op.RENEW: self.batches.renew,
            Op.SETTLE_BATCHES: self.batches.settle,
            Op.ABANDON_BATCHES: self.batches.abandon,
            Op.FORGET_KEYS: pushes.forget_keys,
            Op.SET_TOKEN: self._set_token,
            Op.DELETE_TOKEN: self._delete_token,
            Op.PURGE: operations.purge,
            Op.MOVE: operations.move,
            Op.SUSPEND: operations.suspend,
        }
        self._handlers_2: dict[int, Callable[..., Any]] = {
            Op.PUSH_MARKED: marked.push,
            Op.END_JOBS: marked.end_jobs,
            Op.CLAIM: self.batches.claim,
            Op.DELETE_SUBSCRIPTION: self.batches.delete,
            Op.PULL_FIRST: self.named.pull_first,
            Op.PUSH_EACH: pushes.push_each,
            Op.RESERVE_FROM: self.batches.reserve_from,
            Op.CREATE_FOR: self._create_for,
            Op.RENEW_SALT: self._renew_salt,
            Op.DIGEST: self._digest,
            Op.REPORT_DIGEST: self._report_digest,
        }

    # --- applying -------------------------------------------------------------------------------------------------

    def apply(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: Iterable[Command]
    ) -> Applied:
        """Apply one batch of the node `origin`, stamped by the leader with `now_us`.

        A command that cannot be carried out yields a `Fault`, on every replica alike.

        Raises:
            IncompatibleVersionError: the program is too old to go on; the node must stop.
        """
        self.now_us = max(self.now_us, now_us)
        self._ready, self._created, self._deleted = [], [], []
        if self.now_us >= self.expiry.next_us:
            self.expiry.run(self.now_us)
        status = self.sessions.admit(origin, incarnation, sequence)
        if status != "applied":
            return Applied(status, [], self._ready)
        results = [self._execute(command) for command in commands]
        return Applied(status, results, self._ready, self._created, self._deleted)

    def _execute(self, command: Command) -> Any:
        try:
            return self._handlers[command[0]](*command[1:])
        except RefusedError as exc:
            return Fault(exc.reason, exc.code)
        except (MemoryError, IncompatibleVersionError):
            # A replica that ran out of memory or is too old has diverged from the others: it must stop, not go on.
            raise
        except Exception as exc:  # noqa: BLE001 - the state machine must be total
            return Fault(f"{type(exc).__name__}: {exc}")

    # --- queues ---------------------------------------------------------------------------------------------------

    def queue(self, name: bytes) -> Queue:
        """The queue of that name with current settings, created if need be."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.create(name)
        elif queue.revision != self._revision:
            self._look_after(queue)
        return queue

    def create(self, name: bytes, owner: bytes = b"") -> Queue:
        """Make the queue, which must not exist.

        Raises:
            ValueError: the name is not 1 to 255 bytes.
            RefusedError: ``quota_exceeded``. Where nobody needs a token the nodes bound the number of all queues.
        """
        if self.version >= 2 and (owner or len(self.tokens)):
            self.quotas.check(Kind.QUEUES, owner)
        return self.add(name, owner)

    def add(self, name: bytes, owner: bytes) -> Queue:
        """As `create`, whatever the owner has."""
        if type(name) is not bytes or not 0 < len(name) <= NAME_BYTES_MAX:
            raise ValueError("a queue name must have 1 to 255 bytes")
        # Without rules all queues begin alike, and share one object.
        settings = self._settings({}, name) if self.rules else _PLAIN
        queue = Queue(name, settings, self.endings, self.stock)
        queue.owner = owner
        self.quotas.take(Kind.QUEUES, owner)
        queue.revision, queue.rules_revision = self._revision, self._rules_revision
        self.queues[name] = queue
        self.names.add(name)
        self.patterns.created(queue)
        self._created.append(queue)
        return queue

    def _create_for(self, name: bytes, owner: bytes) -> bool:
        """Make a queue, unless it exists, and count it to its owner; a node sends this before a command that would make it."""
        if name not in self.queues:
            self.create(name, checked_owner(owner))
        return True

    def touched(self, queue: Queue) -> Queue:
        """The queue, ready to be changed. A command changes no queue that it did not get from here, `queue` or `existing`."""
        if queue.revision != self._revision:
            self._look_after(queue)
        return queue

    def _look_after(self, queue: Queue) -> None:
        """Do what was put off for a queue until it is used: keep it for an open snapshot view, resolve its properties."""
        view = self._view
        if view is not None and queue.revision < view.revision:
            view.freeze(queue)
        if queue.rules_revision != self._rules_revision:
            self.refresh(queue)
        queue.revision = self._revision

    def refresh(self, queue: Queue) -> None:
        """Resolve the queue's properties anew."""
        queue.settings = self._settings(queue.own, queue.name)
        queue.rules_revision = self._rules_revision
        self.hooked.note(queue.name, queue.settings.preserved if "hooks" in queue.own else ())

    def _settings(self, own: Mapping[str, Any], name: bytes) -> Settings:
        settings = settings_of(effective(own, self.rules, name))
        if settings.deliveries < 1 and self.version >= 2:
            # Front ends refuse a negative retry; older ones took it, and every push would be dropped.
            return settings._replace(deliveries=1)
        return settings

    def existing(self, name: bytes) -> Queue | None:
        """The queue of that name with current settings, None if there is none."""
        queue = self.queues.get(name)
        if queue is not None and queue.revision != self._revision:
            self._look_after(queue)
        return queue

    @staticmethod
    def _note_views(queue: Queue) -> None:
        for view in queue.views:
            view.note(queue)

    # --- push -----------------------------------------------------------------------------------------------------

    def _push(
        self,
        name: bytes,
        content_type: bytes | None,
        contents: list[bytes],
        producer: bytes | None,
        first: int,
        owner: bytes = b"",
    ) -> list[int]:
        if type(contents) not in _SEQUENCES or not _are_all(bytes, contents):
            raise ValueError("bodies must be bytes")
        if content_type is not None and type(content_type) is not bytes:
            raise ValueError("a content type must be bytes or None")
        if producer is not None and (type(producer) is not bytes or type(first) is not int or abs(first) > _INT_MAX):
            raise ValueError("a producer must be bytes and its sequence an integer of 63 bits")
        queue = self.queue(name)
        duplicates = 0
        if producer is not None:
            if self.version < 2:
                self.producers.expire(self.now_us, None)
            duplicates = self.producers.admit(checked_owner(owner), producer, first, len(contents), self.now_us)
            self.expiry.at(self.now_us + REMEMBER_US)
            if duplicates:
                contents = contents[duplicates:]
        flags = self.store(queue, (content_type, ()), contents)
        return [0] * duplicates + flags if duplicates else flags

    def store(self, queue: Queue, meta: Meta, contents: list[bytes]) -> list[int]:
        """Put bodies that share one meta into a queue; returns a flag for each."""
        bounds_windows = self.version >= 2
        flags = queue.push(self.now_us, self.last_sequence + 1, meta, contents, bounds_windows=bounds_windows)
        self.last_sequence += len(contents)
        self.note_due(queue)
        return flags

    # --- pull -----------------------------------------------------------------------------------------------------

    def _pull(self, name: bytes, count: int) -> list[Delivered] | None:
        if type(count) is not int:
            raise ValueError("a count must be an integer")
        queue = self.queue(name)
        dropped_before = queue.dropped_total
        delivered = self.pull_from(queue, count)
        if not delivered:
            if queue.dropped_total - dropped_before >= DROPS_MAX:
                return None
            self.idle.pulled(queue)
        return delivered

    def pull_from(self, queue: Queue, count: int) -> list[Delivered]:
        """Lease up to `count` messages of a queue to a client."""
        return self._counted(queue, queue.pull(self.now_us, count, self.last_delivery))

    def take(self, queue: Queue, count: int, deadline_us: int, charge: int) -> list[Delivered]:
        """Lease up to `count` messages of a queue for a batch; `charge` is how many deliveries that uses up, 0 or 1."""
        return self._counted(queue, queue.lease(self.now_us, count, self.last_delivery, deadline_us, charge))

    def _counted(self, queue: Queue, delivered: list[Delivered]) -> list[Delivered]:
        self.last_delivery += len(delivered)
        if delivered and delivered[0][3].due_us < queue.watched_us:
            self.lease_watch.note(queue, delivered[0][3].due_us)
        if queue.settings.timeout_us < 0:
            # The leases ended before they began, so the queue's earliest due time may have fallen.
            self._ready.append(queue)
        if queue.views:
            self._note_views(queue)
        return delivered

    def _pull_any(self, pattern: bytes, count: int) -> list[Delivered] | None:
        if type(count) is not int:
            raise ValueError("a count must be an integer")
        view: PatternView = self.patterns.view(pattern)
        delivered: list[Delivered] = []
        drops = 0
        while len(delivered) < min(count, REPEATS_MAX) and drops < DROPS_MAX:
            earliest = view.earliest()
            if earliest is None or earliest[0] > self.now_us:
                break
            queue = earliest[1]
            dropped_before = queue.dropped_total
            delivered += self.pull_from(self.queue(queue.name), 1)
            drops += queue.dropped_total - dropped_before
        return None if not delivered and drops >= DROPS_MAX else delivered

    # --- settle ---------------------------------------------------------------------------------------------------

    def _ack(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        queue = self.existing(name)
        if queue is None:
            return None
        _check_numbers(numbers)
        return queue.ack(self.now_us, numbers)

    def _nack(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        return self._settle(name, numbers, Queue.nack if self.version < 2 else Queue.nack_or_drop)

    def _extend(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        results = self._settle(name, numbers, Queue.extend)
        if results:
            queue = self.queues[name]
            self.lease_watch.note(queue, self.now_us + queue.settings.timeout_us)
        return results

    def put_back(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        """Undo deliveries; None if there is no such queue."""
        return self._settle(name, numbers, Queue.put_back)

    def put_back_uncharged(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        """Undo deliveries that were not charged; None if there is no such queue."""
        return self._settle(name, numbers, Queue.put_back_uncharged)

    def _settle(
        self, name: bytes, numbers: list[int], verb: Callable[[Queue, int, list[int]], list[bool]]
    ) -> list[bool] | None:
        queue = self.existing(name)
        if queue is None:
            return None
        _check_numbers(numbers)
        results = verb(queue, self.now_us, numbers)
        self.note_due(queue)
        return results

    def note_due(self, queue: Queue) -> None:
        """Messages of the queue may be due earlier than before."""
        self._ready.append(queue)
        if queue.views:
            self._note_views(queue)

    def settled_by(self, op: Op, name: bytes, number: int) -> bool | None:
        """Whether a delivery that a command `op` (ack, nack or put back) finds no lease of was ended by such a command before.

        Returns:
            None if that is forgotten.
        """
        queue = self.queues.get(name)
        if not 0 < number <= self.last_delivery or (queue is not None and number in queue.leases.messages):
            return False
        ending = self.endings.find(number)
        if ending is None and number <= self.endings.floor:
            return None
        return ending == _ENDING_BY[op]

    # --- properties and the rest ----------------------------------------------------------------------------------

    def _set_properties(self, name: bytes, pairs: list[Any]) -> bool:
        checked = checked_properties(pairs)
        if self.version >= 2:
            self._check_property_bytes(name, dict(checked))
        queue = self.queue(name)
        self.set_own(queue, {**queue.own, **dict(checked)})
        self.refresh(queue)
        return True

    def _check_property_bytes(self, name: bytes, properties: dict[str, Any]) -> None:
        queue = self.existing(name)
        owner, own = (b"", {}) if queue is None else (queue.owner, queue.own)
        more = property_bytes({**own, **properties}) - property_bytes(own)
        if more > 0 and (owner or len(self.tokens)):
            self.quotas.check(Kind.PROPERTY_BYTES, owner, more)

    def set_own(self, queue: Queue, own: dict[str, Any]) -> None:
        """Replace a queue's own properties; `refresh` must follow."""
        more = property_bytes(own) - property_bytes(queue.own)
        if more > 0:
            self.quotas.take(Kind.PROPERTY_BYTES, queue.owner, more)
        elif more < 0:
            self.quotas.give(Kind.PROPERTY_BYTES, queue.owner, -more)
        queue.set_own(own)

    def _clear_properties(self, name: bytes) -> bool:
        queue = self.queue(name)
        self.set_own(queue, {})
        self.refresh(queue)
        return True

    def _set_defaults(self, rules: list[Any]) -> bool:
        self.rules = [
            Rule(pattern, tuple(checked_properties(pairs)), self.compile(pattern)) for pattern, pairs in rules
        ]
        self._revision += 1
        self._rules_revision += 1
        return True

    def delete(self, name: bytes) -> bool:
        """Delete a queue with all it holds; whether there was one."""
        queue = self.existing(name)
        if queue is not None:
            del self.queues[name]
            self.names.remove(name)
            self.set_own(queue, {})
            queue.uncount()
            self.quotas.give(Kind.QUEUES, queue.owner)
            self.idle.deleted(queue)
            self.lease_watch.deleted(queue)
            self.patterns.deleted(queue)
            self._deleted.append(queue)
            self.hooked.note(name, ())
            for counter in COUNTERS:
                self.retired[counter] += getattr(queue, counter)
        return queue is not None

    def _set_token(
        self,
        name: bytes,
        digest: bytes,
        role: int,
        pattern: bytes,
        lifetime_us: int,
        without_admin: bool,
        created_us: int | None = None,
    ) -> TokenResult:
        if type(lifetime_us) is not int or lifetime_us < 0:
            raise ValueError("a lifetime must be an integer, 0 or more")
        if not isinstance(created_us, (int, type(None))):
            raise ValueError("a time of day must be an integer")
        created_us = self.now_us if created_us is None else created_us
        expires_us = created_us + lifetime_us if lifetime_us else 0
        token = Token(name, digest, Role(role), pattern, created_us, expires_us)
        result = self.tokens.set(token, without_admin=without_admin)
        if result == TokenResult.DONE and self.version >= 2:
            self.releases.cancel(name)
            if expires_us:
                self.expiry.at(expires_us)
        return result

    def _delete_token(self, name: bytes, without_admin: bool) -> TokenResult:
        result = self.tokens.delete(name, without_admin=without_admin)
        if result == TokenResult.DONE and self.version >= 2:
            self.releases.begin(name)
        return result

    def _barrier(self) -> bool:
        return True

    def _found(self, salt: bytes) -> bool:
        _check_salt(salt)
        if not self.salt:
            self.salt = salt
        return True

    def _renew_salt(self, salt: bytes) -> bool:
        """Take the meaning from all ids handed out so far: those of deliveries in a lost part of the log would name later ones.

        The numbers of such deliveries are skipped, because a node may be about to settle one.
        """
        _check_salt(salt)
        self.salt = salt
        self.last_delivery += NUMBERS_SKIPPED
        return True

    def _digest(self, token: bytes) -> bytes:
        """Equal on equal replicas; what differs in the numbers shows up without looking at every queue."""
        if self.version < 2:
            raise ValueError("the machine's version has no such command")
        counted = (
            *(token, self.version, self.now_us, self.salt, self.last_delivery, self.last_sequence),
            *(len(self.queues), self.stock.messages, self.stock.body_bytes, len(self.producers), len(self.keys)),
        )
        return hashlib.blake2b(repr(counted).encode(), digest_size=16).digest()

    def _report_digest(self, token: bytes, member: bytes, digest: bytes) -> bool:
        if self.version < 2 or {type(token), type(member), type(digest)} != _ONLY_BYTES:
            raise ValueError("a report has a token, a member and a digest, and came with version 2")
        return True

    def _upgrade(self, version: int) -> int:
        if type(version) is not int:
            raise ValueError("a machine version must be an integer")
        if version > self.VERSION_MAX:
            raise IncompatibleVersionError(
                f"the cluster moves to machine version {version}, this program understands up to {self.VERSION_MAX}"
            )
        before, self.version = self.version, max(self.version, version)
        if before < 2 <= self.version:
            # Once in a cluster's life a command looks at every queue.
            self.begin_version_2(anew=True)
        return self.version

    def begin_version_2(self, *, anew: bool) -> None:
        """Go on as machine version 2: its commands, and what ends by log time ends by itself; see `LeaseWatch.begin`."""
        self._handlers |= self._handlers_2
        self.patterns.retire()
        # Settings are resolved anew when a queue is met.
        self._revision += 1
        self._rules_revision += 1
        self.lease_watch.begin(anew=anew)
        self.expiry.begin()

    # --- reading --------------------------------------------------------------------------------------------------

    def properties(self, name: bytes) -> dict[str, Any]:
        """Effective properties of a queue, which need not exist: accum (ms), hooks if set, retry, timeout (s)."""
        queue = self.queues.get(name)
        # An empty queue is false.
        return effective({} if queue is None else queue.own, self.rules, name)

    def totals(self) -> dict[str, int]:
        """Sums of the queues' counters, those of deleted queues included."""
        queues = self.queues.values()
        return {name: retired + sum(getattr(queue, name) for queue in queues) for name, retired in self.retired.items()}

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[list[Any]]:
        """The whole state as a sequence of plain records; equal states give equal records.

        The machine must not change until the last one is read; `freeze_view` has no such condition.
        """
        return SnapshotView(self).records()

    def freeze_view(self) -> SnapshotView:
        """A view of the state as it is now, to be read while the machine goes on; it has to be closed.

        Raises:
            RuntimeError: another view is open.
        """
        if self._view is not None:
            raise RuntimeError("a snapshot view is open already")
        self._revision += 1
        self._view = SnapshotView(self, PreImages(self.last_sequence), self._revision)
        return self._view

    def view_closed(self, view: SnapshotView) -> None:
        """Called by a view when it is closed."""
        if self._view is view:
            self._view = None

    @classmethod
    def restore(cls, compile_pattern: Compile, records: Iterable[list[Any]]) -> Machine:
        """Build the machine whose `snapshot` gave the records.

        Raises:
            ValueError: the records are not a complete snapshot of a known version.
        """
        restoration = cls.restore_incrementally(compile_pattern)
        for record in records:
            restoration.take(record)
        return restoration.finish()

    @classmethod
    def restore_incrementally(cls, compile_pattern: Compile) -> Restoration:
        """What takes the records of a snapshot one by one and gives the machine in the end."""
        return Restoration(cls(compile_pattern))


def _check_salt(salt: bytes) -> None:
    if type(salt) is not bytes or len(salt) != SALT_BYTES:
        raise ValueError(f"the salt must have {SALT_BYTES} bytes")


def _check_numbers(numbers: list[int]) -> None:
    # Checked before the first is settled, because a command fails as a whole.
    if type(numbers) not in _SEQUENCES or not _are_all(int, numbers):
        raise ValueError("delivery numbers must be integers")


def _are_all(kind: type, values: list[Any]) -> bool:
    # Nearly always there is one.
    return type(values[0]) is kind if len(values) == 1 else set(map(type, values)) <= {kind}
