"""Invariants checked after every event, from outside: from log changes, roles and applied commands.

Nothing here knows the replication layer. Each guarantee of Raft is checked in the form that needs the least memory:
an entry is named by (index, term), and the first observation of a value fixes what all members must see.
"""

from __future__ import annotations

import bisect
import hashlib
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.clock import Clock
    from tests.simulation.host import Host
    from tests.simulation.interfaces import Replica
    from tests.simulation.journal import LogView

__all__ = ["Checkers", "Violation"]

VIOLATIONS_KEPT = 200
MEMBERSHIP = b"\x02"
"""The first byte of entries that change the membership."""


@dataclass(frozen=True)
class Violation:
    """A broken guarantee: `kind` groups, `detail` says who and where, `at_s` is virtual time since the start."""

    kind: str
    detail: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s  {self.kind}: {self.detail}"


@dataclass
class _Seen:
    """A process as of its last event."""

    term: int = 0
    is_leader: bool = False
    commit_index: int = 0
    voted_for: str | None = None


@dataclass(frozen=True)
class _Committed:
    term: int
    by_term: int
    """The term of the leader that committed it: only leaders of later terms must have the entry."""


class Checkers:
    """Observes all hosts of one run; collects violations, applied commands and acknowledgements.

    Attributes:
        on_election: called once with each node that becomes leader.
    """

    def __init__(self, clock: Clock, *, retries: bool) -> None:
        self._clock = clock
        self._retries = retries
        self._started = clock.now
        self.hosts: dict[str, Host] = {}
        self.violations: list[Violation] = []
        self._seen: dict[str, _Seen] = {}
        self._past_logs: dict[str, list[LogView]] = {}
        self._leaders: dict[int, tuple[str, int]] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int | None]] = {}
        # The library's log begins with a no-op of term 0 that is never committed.
        self.committed: dict[int, _Committed] = {1: _Committed(0, 0)}
        self.commit_index = 0
        self.history: dict[int, tuple[bytes, bytes]] = {}
        self._indexes: list[int] = []
        self._states: dict[int, bytes] = {}
        self.applied_at: dict[bytes, int] = {}
        self.awaited: dict[str, set[bytes]] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.elections = 0
        self.on_election: list[Callable[[Host], None]] = []
        self.trace: list[str] | None = None

    def report(self, kind: str, detail: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(Violation(kind, detail, self._clock.now - self._started))
        self.note("VIOLATION", f"{kind}: {detail}")

    def note(self, what: str, detail: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._clock.now - self._started:9.4f}  {what:10} {detail}")

    def begin_again(self) -> None:
        """Reset after all members lost their memory; terms and votes must still match what they were."""
        self._past_logs.clear()
        self._entries.clear()
        self.committed = {1: _Committed(0, 0)}
        self.commit_index = 0
        self.history.clear()
        self._indexes.clear()
        self._states.clear()
        self.applied_at.clear()
        self.acknowledged.clear()

    # Lives

    def life_begins(self, host: Host) -> None:
        self.hosts[host.id] = host
        previous = self._seen.get(host.id)
        # The term and the vote outlive the process, but not the disk; the rest is learned again.
        kept = previous is not None and not host.disk_lost
        self._seen[host.id] = _Seen(previous.term, voted_for=previous.voted_for) if kept else _Seen()
        self.awaited[host.id] = set()
        self.note("start", f"{host.id} life {host.life}")

    def life_ends(self, host: Host, replica: Replica) -> None:
        """Keep counting what it held durably as stored by it, even if that was lost with the process or the disk."""
        self._past_logs.setdefault(host.id, []).append(replica.journal.view)
        self.note("kill", host.id)

    def reopened(self, host: Host, replica: Replica) -> None:
        """Check after a start that durable data is still there, unless the process may have forgotten it."""
        seen = self._seen[host.id]
        voted_for = replica.journal.getVotedForNodeId()
        if replica.term > seen.term:
            # The process died after this reached the disk and before anything showed it.
            seen.term, seen.voted_for = replica.term, voted_for
        if replica.term == seen.term and seen.voted_for is not None and voted_for != seen.voted_for:
            self.report(
                "vote changed", f"{host.id} in term {seen.term} from {seen.voted_for} to {voted_for} by a restart"
            )
        past = self._past_logs.get(host.id)
        if not past or host.may_forget:
            return
        old, new = past[-1], replica.journal.view
        if old.term_at(new.first) not in (None, new.term_at(new.first)):
            # A snapshot that was installed, or almost, shows that the log had diverged.
            return
        for index in range(max(old.first, new.first + 1), old.durable_last + 1):
            if new.term_at(index) != old.term_at(index):
                detail = f"{host.id}: index {index} had term {old.term_at(index)}, now {new.term_at(index)}"
                self.report("durable entry lost", f"{detail}, the log is {new.first} to {new.last}")
                return

    def exception(self, host: Host, error: Exception, *, is_violation: bool) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].name}:{frames[-1].lineno}" if frames else "?"
        detail = f"{host.id}: {type(error).__name__}: {error} (in {where})"
        if is_violation:
            self.report("exception", detail)
        else:
            self.note("exception", detail)

    # The log

    def appended(self, host: Host, command: bytes, index: int, term: int, previous_term: int | None) -> None:
        """Check log matching: index and term name one entry and, by induction, everything before it."""
        if command[:1] == MEMBERSHIP:
            self._changes_members(host, index, term)
        known = self._entries.get((index, term))
        if known is None:
            self._entries[index, term] = (command, previous_term)
            return
        known_command, known_previous = known
        if known_command != command:
            self.report("log matching", f"{host.id}: two entries are index {index} term {term}")
        if previous_term is not None:
            if known_previous is None:
                self._entries[index, term] = (command, previous_term)
            elif known_previous != previous_term:
                detail = f"{host.id}: the entry before index {index} term {term} has terms {known_previous} and {previous_term}"
                self.report("log matching", detail)

    def _changes_members(self, host: Host, index: int, term: int) -> None:
        """Check that a leader changes the membership only after an entry of its term is committed (Ongaro, 2015)."""
        replica = host.replica
        if replica is not None and replica.is_leader and replica.term == term:
            log = replica.journal.view
            if log.first < replica.commit_index and log.term_at(replica.commit_index) != term:
                self.report("members changed too soon", f"{host.id} in term {term} at index {index}")

    def truncated(self, host: Host, first_index: int, terms: Sequence[int]) -> None:
        """Check that an entry leaves a log only if the leader of the node's term does not have it."""
        if not terms:
            return
        self.note("truncate", f"{host.id} from {first_index}, {len(terms)} entries")
        for index, term in enumerate(terms, first_index):
            committed = self.committed.get(index)
            if committed is not None and committed.term == term:
                self.report("committed entry removed", f"{host.id} drops index {index} term {term}")
                return
        seen = self._seen[host.id]
        leader = self._leaders.get(seen.term)
        if leader is None or leader[0] == host.id:
            return
        leading = self.hosts[leader[0]].replica
        if leading is None or not leading.is_leader or leading.term != seen.term:
            return
        log = leading.journal.view
        for index, term in enumerate(terms, first_index):
            if log.term_at(index) == term:
                self.report("promise broken", f"{host.id} drops index {index}, which its leader {leader[0]} has")
                return

    def vote_stored(self, host: Host, term: int, voted_for: str | None) -> None:
        seen = self._seen[host.id]
        if term < seen.term:
            self.report("term went back", f"{host.id} from {seen.term} to {term}")
        if term == seen.term and seen.voted_for is not None and voted_for != seen.voted_for:
            self.report("vote changed", f"{host.id} in term {term} from {seen.voted_for} to {voted_for}")
        if term > seen.term or voted_for is not None:
            seen.voted_for = voted_for
        seen.term = max(term, seen.term)

    # Roles and commitment

    def observe(self, host: Host) -> None:
        """Compare a process after an event with its state before."""
        replica = host.replica
        if replica is None:
            return
        seen = self._seen[host.id]
        term, is_leader, commit_index = replica.term, replica.is_leader, replica.commit_index
        if term < seen.term:
            self.report("term went back", f"{host.id} from {seen.term} to {term}")
        if is_leader and (not seen.is_leader or term != seen.term or self._leaders.get(term) is None):
            self._leads(host, replica, term)
        elif seen.is_leader and not is_leader:
            self.note("steps down", f"{host.id} term {term}")
        # A leader may commit and step down in one event.
        led = is_leader or (seen.is_leader and seen.term == term)
        seen.term, seen.is_leader = term, is_leader
        if commit_index > seen.commit_index:
            self._commits(host, replica, seen.commit_index + 1, commit_index, led=led)
            seen.commit_index = commit_index
        self._check_base(host, replica)

    def _check_base(self, host: Host, replica: Replica) -> None:
        """Check that the snapshot covers what the log lacks, and that everything in the snapshot is applied."""
        kept = replica.kept()
        if kept is None:
            return
        (latest, applied), first = kept, replica.journal.view.first
        if first > max(latest, 1):
            self.report("log cut too far", f"{host.id} begins at index {first}, the latest snapshot is of {latest}")
        if latest > applied:
            self.report("snapshot not applied", f"{host.id} keeps one of index {latest}, applied is {applied}")

    def _leads(self, host: Host, replica: Replica, term: int) -> None:
        """Check that a term has one leader, and that it has everything that earlier leaders committed."""
        if self._leaders.setdefault(term, (host.id, host.life)) != (host.id, host.life):
            self.report("two leaders in a term", f"{self._leaders[term][0]} and {host.id} in term {term}")
            return
        self.elections += 1
        self.note("leads", f"{host.id} term {term}, log ends at {replica.journal.view.last}")
        log = replica.journal.view
        for index, committed in self.committed.items():
            if committed.by_term < term and index >= log.first and log.term_at(index) != committed.term:
                self.report("leader lacks committed entry", f"{host.id} of term {term} lacks index {index}")
                break
        strikes, self.on_election = self.on_election, []
        for strike in strikes:
            strike(host)

    def _commits(self, host: Host, replica: Replica, first: int, last: int, *, led: bool) -> None:
        """Check that a leader commits what a majority holds, and that others commit only what a leader committed."""
        log = replica.journal.view
        if last > log.last:
            self.report("commit behind the log", f"{host.id}: commit {last}, log ends at {log.last}")
        for index in range(max(first, log.first), min(last, log.last) + 1):
            term = log.term_at(index)
            assert term is not None
            committed = self.committed.get(index)
            if committed is not None:
                if committed.term != term:
                    detail = f"{host.id} has term {term} at index {index}, committed is term {committed.term}"
                    self.report("commits differ", detail)
                    return
                continue
            if not led:
                self.report("commit unknown to leaders", f"{host.id} commits index {index}")
                return
            if not any(self._held_by_majority(members, index, term) for members in _members_since(replica, index)):
                detail = f"{host.id} commits index {index}, not held by a majority of {replica.members}"
                self.report("commit without majority", detail)
                return
            self.committed[index] = _Committed(term, replica.term)
            self.commit_index = max(self.commit_index, index)
            if index == last and term != replica.term:
                # An entry of an earlier term is committed only with one of the leader's own (Raft, figure 8).
                self.report(
                    "earlier term committed", f"{host.id} of term {replica.term} commits index {index} of {term}"
                )

    def _held_by_majority(self, members: Sequence[str], index: int, term: int) -> bool:
        return 2 * sum(self._holds(member, index, term) for member in members) > len(members)

    def _holds(self, member: str, index: int, term: int) -> bool:
        host = self.hosts.get(member)
        if host is not None and host.replica is not None:
            log = host.replica.journal.view
            if index < log.first or log.durable_term_at(index) == term:
                return True
        return any(log.durable_term_at(index) == term for log in self._past_logs.get(member, ()))

    # What is applied

    def awaits(self, host: Host, command: bytes) -> None:
        """Note that `host` was asked for `command`: applying it there is the acknowledgement."""
        self.awaited[host.id].add(command)

    def applied(self, host: Host, index: int, command: bytes) -> None:
        self.observe(host)  # The leader commits and applies in one event.
        application = host.application
        if index <= application.index:
            self.report("applied twice", f"{host.id} applies index {index} after index {application.index}")
        digest = hashlib.blake2b(b"%b %d %b" % (application.digest, index, command), digest_size=8).digest()
        application.index, application.digest = index, digest
        known = self.history.get(index)
        if known is None:
            self.history[index] = (command, digest)
            bisect.insort(self._indexes, index)
            earlier = self.applied_at.setdefault(command, index)
            if earlier != index and not self._retries:
                self.report("doubled", f"{host.id} applies {command[:12]!r} at index {index}, before at {earlier}")
            if index > self.commit_index:
                self.report("applied uncommitted", f"{host.id} applies index {index}, commit is {self.commit_index}")
        elif known[0] != command:
            self.report(
                "applied differs", f"{host.id} applies {command[:12]!r} at index {index}, not {known[0][:12]!r}"
            )
        elif known[1] != digest:
            self.report("applied differs", f"{host.id} reached index {index} with another history")
        if command in self.awaited[host.id]:
            self.awaited[host.id].discard(command)
            self.acknowledged[command] = index

    def state(self, host: Host, index: int, digest: bytes) -> None:
        """Record the digest of the whole state after the entry `index`, on any replica, applied or restored."""
        known = self._states.setdefault(index, digest)
        if known != digest:
            self.report("states differ", f"{host.id} after index {index}")

    def restored_up_to(self, host: Host, index: int) -> None:
        """Note that a snapshot after the entry `index`, which may be no command, replaced the application's state."""
        position = bisect.bisect_right(self._indexes, index)
        last = self._indexes[position - 1] if position else 0
        self.restored(host, last, self.history[last][1] if last else b"")

    def restored(self, host: Host, index: int, digest: bytes) -> None:
        """Note that a snapshot replaced the application's state."""
        self.note("restored", f"{host.id} at index {index}")
        if index < host.application.index:
            self.report("snapshot goes back", f"{host.id} from index {host.application.index} to {index}")
        known = self.history.get(index)
        if index and (known is None or known[1] != digest):
            self.report("applied differs", f"{host.id} got a snapshot of another history at index {index}")
        host.application.index, host.application.digest = index, digest


def _members_since(replica: Replica, index: int) -> Iterator[Sequence[str]]:
    """Return the lists of members by which a leader may have committed the entry: the current one and those since then.

    One event may commit a change and accept the next one.
    """
    yield replica.members
    core = getattr(replica, "core", None)
    if hasattr(core, "members_at"):
        for later in range(replica.journal.view.last, index - 1, -1):
            yield sorted(core.members_at(later))
