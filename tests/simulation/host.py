"""One simulated machine: a process that runs, is paused, dies and is started again, and its end of the network."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from pysyncobj.transport import Transport

from lmqcluster.core.messages.pages import PageError
from lmqcluster.replication.recovery.lost_pages import MissingPagesError
from lmqcluster.replication.storage.io.disk import DamagedFileError
from lmqcluster.replication.storage.meta import NodeMeta
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.interfaces import Application, JudgeNeedsPageError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from pysyncobj.node import Node

    from tests.simulation.checkers import Checkers
    from tests.simulation.clock import Clock
    from tests.simulation.interfaces import Replica, Subject
    from tests.simulation.network import Network

__all__ = ["DISK_S", "Host", "SimTransport"]

DISK_S = (0.0001, 0.003)
STEP_DELAY_S = 0.0002
"""Delay between an input and the step that handles it, so that simultaneous inputs share a step."""


class SimTransport(Transport):
    """The library's transport interface on the simulated network; takes messages from known peers only."""

    def __init__(self, host: Host, peers: Sequence[Node]) -> None:
        super().__init__(None, None, None)
        self._host = host
        self._nodes: dict[str, Node] = {}
        for peer in peers:
            self.addNode(peer)

    def addNode(self, node: Node) -> None:  # noqa: N802 - the library's name
        self._nodes.setdefault(node.id, node)

    def dropNode(self, node: Node) -> None:  # noqa: N802
        if self._nodes.pop(node.id, None) is not None:
            self._host.hang_up(node.id)

    def dials(self, peer: str) -> bool:
        return peer in self._nodes

    def accepts(self, peer: str) -> bool:
        return peer in self._nodes

    def send(self, node: Node, message: Any) -> bool:
        return self._host.send(node.id, message)

    def deliver(self, peer: str, message: Any) -> None:
        if peer in self._nodes:
            self._onMessageReceived(self._nodes[peer], message)

    def connection_made(self, peer: str) -> None:
        if peer in self._nodes:
            self._onNodeConnected(self._nodes[peer])

    def connection_lost(self, peer: str) -> None:
        if peer in self._nodes:
            self._onNodeDisconnected(self._nodes[peer])


class Host:
    """The part of a node that outlives its process, and the process if it runs.

    Attributes:
        acting: the host whose process is running now, for what the code under test asks the operating system.
        boots: number of times the machine was switched on.
        wall_offset_s: error of its wall clock.
        program: the newest machine version that its program understands, None for the one under test.
        disk_s: duration of a disk operation.
        fragile: the next crash during a disk call is a power failure, not only the end of the process.
        harmed: its files were damaged; it may refuse to run.
        refused: it has refused to start.
        may_forget: the log of the last life may legitimately be lost.
        disk_lost: all other files may be lost too.
        untrusted: its disk was lost, and no life since then has recovered what was acknowledged.
        lacking: the last life had not recovered, or the next one will not have, what was acknowledged.
        retired: it is not started again.
        on_death: called when the process has ended by itself or failed to start.
    """

    acting: ClassVar[Host | None] = None

    def __init__(
        self,
        host_id: str,
        clock: Clock,
        network: Network,
        checkers: Checkers,
        subject: Subject,
        rng: random.Random,
        on_death: Callable[[Host], None],
    ) -> None:
        self.id = host_id
        self.life = 0
        self.paused = False
        self.replica: Replica | None = None
        self.application = Application()
        self.transport: SimTransport | None = None
        self.boots = 1
        self.wall_offset_s = 0.0
        self.program: int | None = None
        self.disk_s = DISK_S
        self.fragile = False
        self.harmed = False
        self.refused = False
        self.may_forget = False
        self.disk_lost = False
        self.untrusted = False
        self.lacking = False
        self.retired = False
        self._full = False
        self._faulty = False
        self._dying = False
        self._disks: dict[str, SimDisk] = {}
        self._on_death = on_death
        self._clock = clock
        self._network = network
        self.checkers = checkers
        self._subject = subject
        self.rng = rng
        self._sessions: dict[str, int] = {}
        self._inbound: dict[str, int] = {}
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._step_due = False

    @property
    def running(self) -> bool:
        return self.replica is not None

    # The process

    def start(self, peers: Sequence[str], *, joining: bool = False) -> None:
        """Begin a new life; `peers` is the list of all members on the command line."""
        self.life += 1
        self.application = Application()
        self._dying = False
        self.checkers.life_begins(self)
        Host.acting = self
        try:
            replica = self._subject.start(self, peers, self.rng, joining=joining)
        except PowerCut:
            self._end_life()
            self._on_death(self)
            return
        except (DamagedFileError, OSError) as error:
            self.refused = isinstance(error, DamagedFileError)
            if not self._expects(error):
                self.checkers.exception(self, error, is_violation=True)
            self.checkers.note("refused", f"{self.id}: {error}")
            self._end_life()
            self._on_death(self)
            return
        self.replica = replica
        self.checkers.reopened(self, replica)
        self.may_forget = False
        # Until the member has recovered, it is indistinguishable from one that has lost its disk.
        self.disk_lost = self.disk_lost and replica.recovering
        self.checkers.observe(self)
        self._clock.after(self.rng.uniform(0.0, self._subject.tick_s), self._tick, self.life)

    def fail(self, error: Exception) -> None:
        """End the process because the code under test has stopped for good."""
        if not self._expects(error):
            self.checkers.exception(self, error, is_violation=True)
        # The next start would fail in the same way.
        self.refused = isinstance(error, DamagedFileError)
        self._dying = True
        self._clock.after(0.0, self._die, self.life)

    def answer_failed(self, error: Exception) -> None:
        """Report that an answer failed; the code under test continues."""
        if not isinstance(error, ConnectionError) and not self._expects(error):
            self.checkers.exception(self, error, is_violation=True)

    def _expects(self, error: Exception) -> bool:
        if isinstance(error, (PageError, MissingPagesError)):
            # Other members have the page, or a state that does not need it.
            return False
        return (isinstance(error, (DamagedFileError, JudgeNeedsPageError)) and self.harmed) or (
            isinstance(error, OSError) and (self._full or self._faulty)
        )

    def _die(self, life: int) -> None:
        if life == self.life and self.replica is not None:
            self.checkers.note("dies", self.id)
            self.kill()
            self._on_death(self)

    def kill(self, *, power: bool = False) -> None:
        """End the process abruptly, perhaps with its machine; peers soon notice the broken connections."""
        replica, self.replica = self.replica, None
        self.paused = False
        if replica is not None:
            self.checkers.life_ends(self, replica)
            # A page received from another machine is durable only with the next snapshot.
            self.untrusted = self.untrusted and replica.recovering
            self.lacking = replica.recovering or (self.harmed and (power or self.fragile))
            self._disconnect()
            replica.stop()
        self._end_life(power=power)

    def _end_life(self, *, power: bool = False) -> None:
        power = power or self.fragile
        self.fragile = self._faulty = False
        if power:
            self.boots += 1
            self.checkers.note("power", self.id)
        if self._subject.forgets(power=power):
            self.may_forget = self.lacking = True
        for disk in self._disks.values():
            if power:
                disk.power_failure(self.rng)
            else:
                disk.process_crash()
            disk.full = self._full
        self.lacking = self.lacking or self._disk_lacks()

    def _disk_lacks(self) -> bool:
        """Return whether the next life must recover what this one had not recovered, according to the disk."""
        meta = NodeMeta.read(self._disks[""]) if "" in self._disks else None
        return meta is not None and (meta.recovering or meta.founding)

    def _disconnect(self) -> None:
        self._backlog.clear()
        for peer in self._network.others(self.id):
            self._network.close(self.id, peer, notice_s=(0.0, 1.0))
        self._sessions.clear()
        self._inbound.clear()
        self.transport = None

    # The disks

    def disk(self, folder: str) -> SimDisk:
        """Return the machine's disk for a folder."""
        if folder not in self._disks:
            self._disks[folder] = SimDisk(self.rng)
            self._disks[folder].full = self._full
        return self._disks[folder]

    @property
    def disks(self) -> dict[str, SimDisk]:
        """Return the disks of all folders by name."""
        return self._disks

    def lose_disk(self) -> None:
        """Replace the disk by an empty one; no process may run."""
        self._disks.clear()
        self.may_forget = self.disk_lost = self.untrusted = self.lacking = True
        self.checkers.note("disk lost", self.id)

    @property
    def full(self) -> bool:
        """Return whether the disk rejects new data."""
        return self._full

    @full.setter
    def full(self, full: bool) -> None:
        self._full = full
        for disk in self._disks.values():
            disk.full = full

    def crash_in_writing(self, folder: str, writes: int, *, power: bool) -> None:
        """End the process, or the machine, at one of the next writes to a folder."""
        self.fragile = power
        self.disk(folder).fail_after(writes)

    def fail_in_writing(self, folder: str, writes: int) -> None:
        """Fail one of the next writes to a folder."""
        self._faulty = True
        self.disk(folder).fail_after(writes, lambda: OSError(errno.EIO, "Input/output error"))

    def spare_the_disk(self) -> None:
        """Cancel disk faults that have not struck yet."""
        self.full = self.fragile = self._faulty = False
        self.disk_s = DISK_S
        for disk in self._disks.values():
            disk.never_fail()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Handle the input that arrived during the pause now, before or after the overdue timers."""
        if not self.paused:
            return
        self.paused = False
        if self.rng.random() < 0.5:
            self._guarded(self._replica_tick)
        while self._backlog and not self.paused:
            handler, arguments = self._backlog.popleft()
            self._guarded(handler, *arguments)
        self._want_step()

    def _tick(self, life: int) -> None:
        if life != self.life or self.replica is None:
            return
        if not self.paused:
            self._guarded(self._replica_tick)
        self._clock.after(self._subject.tick_s * self.rng.uniform(0.9, 1.1), self._tick, life)

    def _replica_tick(self) -> None:
        assert self.replica is not None
        self.replica.tick()

    def _want_step(self) -> None:
        if self._subject.wants_steps and not self._step_due:
            self._step_due = True
            self._clock.after(STEP_DELAY_S, self._step)

    def _step(self) -> None:
        self._step_due = False
        if self.replica is not None and not self.paused:
            self._guarded(self.replica.step)

    def input(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Run `handler` in this process, after its pause if it is paused; drop it if the process is dead."""
        if self.replica is None:
            return
        if self.paused:
            self._backlog.append((handler, arguments))
            return
        self._guarded(handler, *arguments)
        self._want_step()

    def _guarded(self, handler: Callable[..., None], *arguments: Any) -> None:
        if self.replica is None or self._dying:
            return
        Host.acting = self
        try:
            handler(*arguments)
        except PowerCut:
            self._dying = True
            self.kill()
            self._on_death(self)
            return
        except Exception as error:  # noqa: BLE001 - the process under test may fail in any way
            if self._expects(error):
                self.fail(error)
            else:
                self.checkers.exception(self, error, is_violation=self._subject.fail_stop)
        # A process that ends because it could not store its term or vote has not shown them to any peer.
        if not self._dying:
            self.checkers.observe(self)

    # The network's calls

    def dials(self, peer: str) -> bool:
        return self._awake() and self.transport.dials(peer) and peer not in self._sessions

    def accepts(self, peer: str) -> bool:
        return self._awake() and self.transport.accepts(peer)

    def _awake(self) -> bool:
        return self.replica is not None and not self.paused and not self._dying

    def session(self, peer: str) -> int | None:
        return self._sessions.get(peer)

    def arrived(self, peer: str, generation: int, message: Any) -> None:
        self.input(self._on_message, peer, generation, message)

    def connected(self, peer: str, generation: int) -> None:
        self.input(self._on_connected, peer, generation)

    def disconnected(self, peer: str, generation: int) -> None:
        self.input(self._on_disconnected, peer, generation)

    def _on_message(self, peer: str, generation: int, message: Any) -> None:
        """Handle `message` if it arrived on the newest known connection."""
        assert self.transport is not None
        if self._subject.shared_connections:
            newest = self._sessions.get(peer)
        else:
            newest = self._inbound[peer] = max(generation, self._inbound.get(peer, 0))
        if generation == newest:
            self.transport.deliver(peer, message)

    def _on_connected(self, peer: str, generation: int) -> None:
        assert self.transport is not None
        if peer in self._sessions:
            self.transport.connection_lost(peer)
        self._sessions[peer] = generation
        self.transport.connection_made(peer)

    def _on_disconnected(self, peer: str, generation: int) -> None:
        if self._sessions.get(peer) == generation and self.transport is not None:
            del self._sessions[peer]
            self.transport.connection_lost(peer)

    # The replica's calls

    def send(self, peer: str, message: Any) -> bool:
        return self._network.send(self.id, peer, message)

    def hang_up(self, peer: str) -> None:
        """Close the process's connection with `peer`."""
        if self._sessions.pop(peer, None) is not None:
            self._network.close(self.id, peer, notice_s=(0.0, 0.1))

    def apply(self, index: int, command: bytes) -> None:
        """Apply `command` of the replica; `index` is the index that the replica reports."""
        self.checkers.applied(self, index, command)

    # The log's calls (see journal.LogWatcher)

    def log_appended(self, command: bytes, index: int, term: int, previous_term: int | None) -> None:
        self.checkers.appended(self, command, index, term, previous_term)

    def log_truncated(self, first_index: int, terms: Sequence[int]) -> None:
        self.checkers.truncated(self, first_index, terms)

    def log_compacted(self) -> None:
        # A leader may commit entries and take a snapshot of them in one event.
        self.checkers.observe(self)

    def log_broken(self, reason: str) -> None:
        self.checkers.report("log broken", f"{self.id}: {reason}")

    def vote_stored(self, term: int, voted_for: str | None) -> None:
        self.checkers.vote_stored(self, term, voted_for)
