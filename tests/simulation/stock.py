"""Unmodified PySyncObj 0.3.17, in which the checkers must find violations."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import MemoryJournal
from pysyncobj.node import Node

from tests.simulation.host import SimTransport
from tests.simulation.journal import WatchedJournal
from tests.simulation.raft_state import RaftState

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from tests.simulation.host import Host
    from tests.simulation.interfaces import Replica
    from tests.simulation.run import Simulation

__all__ = ["StockReplica", "StockSubject"]

REGULAR = 0
POISON = b"\xffpoison"


class _StockNode(SyncObj):
    """Replaces only the application of a command: it goes to the host instead of a method found by pickle."""

    def __init__(self, host: Host, peers: Sequence[Node], transport: SimTransport, conf: SyncObjConf) -> None:
        super().__init__(Node(host.id), peers, conf, nodeClass=Node, transport=transport)
        # Attributes set after the library's constructor are those that it puts into a snapshot.
        self.__dict__["snapshot_state"] = (0, b"")
        self._SyncObj__properies.add("replica_host")
        self.replica_host = host

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802 - overrides a private method
        if command[0] != REGULAR:
            super()._SyncObj__doApplyCommand(command)
            return
        host = self.replica_host
        if command[1:] == POISON:
            raise ValueError("a command that cannot be carried out")
        host.apply(self.raftLastApplied + 1, command[1:])
        self.snapshot_state = (host.application.index, host.application.digest)


class StockReplica(RaftState):
    """The library's object behind the interface of the simulator."""

    def __init__(self, host: Host, core: SyncObj, journal: WatchedJournal) -> None:
        self._host = host
        self.core = core
        self.journal = journal

    @property
    def recovering(self) -> bool:
        return False

    def tick(self) -> None:
        self.core.doTick(0)
        self._note_snapshot()

    def step(self) -> None:
        self._note_snapshot()

    def _note_snapshot(self) -> None:
        index, digest = self.core.snapshot_state
        if digest != self._host.application.digest:
            self._host.checkers.restored(self._host, index, digest)

    def propose(self, command: bytes) -> None:
        self.core._applyCommand(command, lambda _result, _error: None, REGULAR)

    def propose_poison(self) -> None:
        self.core._applyCommand(POISON, lambda _result, _error: None, REGULAR)

    def propose_with_raising_callback(self, command: bytes) -> None:
        def answer(_result: object, _error: int) -> None:
            raise ConnectionError("the client is gone")

        self.core._applyCommand(command, answer, REGULAR)

    def change_members(self, add: bool, member: str) -> None:
        change = self.core.addNodeToCluster if add else self.core.removeNodeFromCluster
        change(Node(member), lambda _result, _error: None)

    def admit(self, member: str) -> None:
        self.change_members(True, member)

    def transfer(self, member: str | None) -> None:
        self.core.transferLeadership(None if member is None else Node(member))

    def take_snapshot(self) -> None:
        self.core.forceLogCompaction()

    def stop(self) -> None:
        self.core._doDestroy()


class StockSubject:
    """Library defaults, except for the batch limit, which is scaled down as the commands are."""

    name = "stock"
    tick_s = 0.05
    shared_connections = True
    fail_stop = False
    retries = False
    wants_steps = True

    def __init__(
        self, *, log_entries: int | None = None, durability: str = "memory", quorum_lost_s: float | None = None
    ) -> None:
        """Keep the library's log in memory in every durability mode."""
        self._settings = {"appendEntriesBatchSizeBytes": 1024, "logCompactionMinEntries": log_entries or 1 << 40}

    def forgets(self, *, power: bool) -> bool:
        return True

    def world(self, simulation: Simulation) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def begin_again(self) -> None:
        """Do nothing: this subject keeps no data itself."""

    def check_end(self, simulation: Simulation) -> None:
        """Do nothing: the checkers have seen everything."""

    def start(self, host: Host, peers: Sequence[str], rng: random.Random, *, joining: bool) -> Replica:
        journals: list[WatchedJournal] = []

        def create_journal(_file: str | None) -> WatchedJournal:
            journals.append(WatchedJournal(MemoryJournal(), host))
            return journals[0]

        nodes = [Node(peer) for peer in peers if peer != host.id]
        host.transport = SimTransport(host, nodes)
        conf = SyncObjConf(autoTick=False, connectionTimeout=4.0, dynamicMembershipChange=True, **self._settings)
        with mock.patch.object(pysyncobj.syncobj, "createJournal", create_journal):
            core = _StockNode(host, nodes, host.transport, conf)
        return StockReplica(host, core, journals[0])
