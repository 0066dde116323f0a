"""Bugs that a review planted and that no test caught then. Each is a patch for the duration of a run, as in
`switches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pysyncobj import SyncObj

from lmqcluster.core.queue.pager import Pager
from lmqcluster.node.membership.replica_digests import ReplicaDigests
from lmqcluster.replication.base.log_clock import LogClock
from lmqcluster.replication.raft.core import RaftCore
from lmqcluster.replication.recovery.page_wait import PageWait
from lmqcluster.replication.recovery.snapshot_keeper import SnapshotKeeper
from lmqcluster.replication.recovery.snapshot_requests import SnapshotRequests
from lmqcluster.replication.recovery.throttle import Throttle
from lmqcluster.replication.replica import Replica
from lmqcluster.replication.storage.journal.journal import Entry
from tests.simulation.switches import switch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PLANTED"]

_apply = Replica._apply
_request = SnapshotKeeper.request
_swap = SnapshotKeeper._swap
_on_snapshot = RaftCore._on_snapshot

LATE_S = 0.05


def _freezing_late(self: SnapshotKeeper) -> None:
    """Read the index now and the state a moment later."""
    position = self._owner.position()
    self._loop.call_later(LATE_S, _request_at, self, position)


def _request_at(self: SnapshotKeeper, position: tuple[int, int, dict[str, str]]) -> None:
    owner = self._owner

    class Late:
        machine = property(lambda _self: owner.machine)

        def position(self) -> tuple[int, int, dict[str, str]]:
            return position

        def __getattr__(self, name: str) -> Any:
            return getattr(owner, name)

    self._owner = Late()
    _request(self)
    self._owner = owner


def _newest_members(self: RaftCore) -> tuple[int, int, dict[str, str]]:
    index = self.applied_index()
    return index, self._journal.term_at(index), self.members()


def _installed_by_length(self: RaftCore, node: Any, message: Any) -> None:
    if message["term"] >= self.term() and message["index"] <= self._journal.last_index:
        self._follow(node, message["term"])
        self._intake.reply(node, message, installed=True)
    else:
        _on_snapshot(self, node, message)


def _changing_at_once(self: RaftCore, request: Any) -> bool:
    self._SyncObj__noopIDx = 0
    return bool(SyncObj._SyncObj__changeCluster(self, request))


def _of_the_present_term(self: RaftCore, fromIDx: int, count: Any = None, maxSizeBytes: Any = None) -> list[Entry]:  # noqa: N803 - the library's names
    journal = self._journal
    if count != 1 or not journal.first_index <= fromIDx <= min(journal.last_index, self._synced_last):
        return []
    return [Entry(b"", fromIDx, self.term())]


def _following_itself(self: Replica, index: int, command: bytes | memoryview) -> bool:
    self.clock.follow(int.from_bytes(command[:8], "big"))
    return _apply(self, index, command)


def _leading_by_the_wall(self: LogClock, stamp_us: int) -> None:
    if stamp_us > self.now_us():
        self.follow(stamp_us)


def _compacting_what_is_applied(self: RaftCore) -> None:
    latest = self._snapshots.latest()
    if latest is not None and latest.index >= self._journal.first_index:
        kept = self._sender.kept_indexes(self._receivers(), self._SyncObj__raftMatchIndex)
        self._history.drop_before(max(self._journal.first_index, min([self.applied_index(), *kept])))


def _adopting_first(self: SnapshotKeeper, loading: Any) -> None:
    if loading.loaded(loading.incoming.info):
        loading.loaded = lambda _info: True
        _swap(self, loading)
    else:
        self._store.adopt(loading.incoming)


def _version_heard_so_far(self: Replica) -> int:
    heard = [about.machine_version for about in self.peers.values()]
    return min([self._about.machine_version, *heard])


def _throttled_by_unwritten_pages(_self: Throttle, pager: Pager) -> bool:
    return pager.is_flooded()


def _asking_no_member(_self: SnapshotRequests, in_vain: Callable[[], None]) -> None:
    in_vain()


PLANTED = {
    "state frozen later than its index is read": switch([(SnapshotKeeper, "request", _freezing_late)]),
    "newest members in the header of a snapshot": switch([(RaftCore, "applied_position", _newest_members)]),
    "clock of the leader set back by each apply": switch([(Replica, "_apply", _following_itself)]),
    "log time by the wall clock after a restart": switch(
        [(LogClock, "lead", _leading_by_the_wall), (LogClock, "guess", lambda _self, _stamp_us: None)]
    ),
    "snapshot up to the log's end counts as installed": switch([(RaftCore, "_on_snapshot", _installed_by_length)]),
    "members changed before an entry of the term": switch([(RaftCore, "_SyncObj__changeCluster", _changing_at_once)]),
    "earlier terms committed by counting": switch([(RaftCore, "_SyncObj__getEntries", _of_the_present_term)]),
    "no replica judges the digests": switch([(ReplicaDigests, "_judge", lambda *_arguments: None)]),
    "version of the members heard so far": switch([(Replica, "common_machine_version", _version_heard_so_far)]),
    "nothing is throttled": switch([(Throttle, "update", lambda _self, _pager: False)]),
    "throttled by pages that are never written": switch([(Throttle, "update", _throttled_by_unwritten_pages)]),
    "pages are not waited for": switch([(PageWait, "may_apply", lambda *_arguments: True)]),
    "no newer state is asked for": switch([(SnapshotRequests, "begin", _asking_no_member)]),
    "log cut up to what is applied": switch([(RaftCore, "compact", _compacting_what_is_applied)]),
    "a refused snapshot is kept": switch([(SnapshotKeeper, "_swap", _adopting_first)]),
    "a snapshot without its pages is kept": switch([(SnapshotKeeper, "_denied", lambda _self, _page: None)]),
}
"""By name, the context manager of each bug."""
