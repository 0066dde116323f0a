"""Timing and size settings of the Raft core, and their translation to PySyncObj's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pysyncobj import SyncObjConf

__all__ = ["BACKLOG_BYTES", "RaftSettings"]

BACKLOG_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Settings of the replicated log. Times in seconds.

    Attributes:
        heartbeat_s: interval of heartbeats; may be shorter than a round trip, because messages are pipelined.
        election_min_s, election_max_s: a follower campaigns after a random time between them without a leader. Too short:
            elections under load; too long: slow failover.
        quorum_lost_s: a leader that has not heard a majority for this long steps down.
        leader_lost_min_s, leader_lost_max_s: the same as the election times, but once the link to the leader is down.
        append_bytes_max: most bytes of entries in one message.
        log_bytes_soft, log_bytes_hard: applied entries beyond the soft limit are dropped unless a connected follower still
            needs them; beyond the hard limit they are dropped for a slow follower too, which then gets a snapshot.
        snapshot_log_bytes, snapshot_apply_s: a new snapshot is taken if the log has grown by more than the last one's size,
            and by more than these bytes or by entries that took longer than this to apply.
        backlog_bytes: bytes of the backlogs kept in memory, besides the next messages of each queue; the rest is in pages.
        apply_bytes_max: approximate bytes of entries that one step applies.
        apply_s_max: a step applies no further entry after this time, because heartbeats wait for it.
        learner_lag_max: a learner that lacks no more entries than this becomes a member.
        learner_patience_s: a learner is dropped if it has not been requested for this time.
    """

    heartbeat_s: float = 0.1
    election_min_s: float = 0.6
    election_max_s: float = 1.2
    quorum_lost_s: float = 0.8
    leader_lost_min_s: float = 0.05
    leader_lost_max_s: float = 0.4
    append_bytes_max: int = 4 * 1024 * 1024
    log_bytes_soft: int = 32 * 1024 * 1024
    log_bytes_hard: int = 256 * 1024 * 1024
    snapshot_log_bytes: int = 64 * 1024 * 1024
    snapshot_apply_s: float = 5.0
    backlog_bytes: int = BACKLOG_BYTES
    apply_bytes_max: int = 1024 * 1024
    apply_s_max: float = 0.05
    learner_lag_max: int = 100
    learner_patience_s: float = 30.0

    def is_snapshot_due(self, log_bytes: int, apply_s: float, latest_bytes: int) -> bool:
        """Return whether a snapshot is due if the log has grown by so many bytes, which took so long to apply, since the last.

        The last one has `latest_bytes`. The state of a cluster whose entries are costly, as those of pushes with attempts
        are, is saved earlier, because a restart applies them again.
        """
        is_long = log_bytes > self.snapshot_log_bytes or apply_s > self.snapshot_apply_s
        return is_long and log_bytes > latest_bytes

    def to_library(self) -> Any:
        """Return PySyncObj's configuration: no ticking thread, no files, no compaction, no chunking."""
        return SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=self.heartbeat_s,
            appendEntriesBatchSizeBytes=1 << 40,
            raftMinTimeout=self.election_min_s,
            raftMaxTimeout=self.election_max_s,
            leaderFallbackTimeout=self.quorum_lost_s,
            connectionTimeout=max(4.0, self.election_max_s),
            commandsQueueSize=0,
            commandsWaitLeader=False,
            dynamicMembershipChange=True,
            logCompactionMinEntries=1 << 60,
            logCompactionMinTime=1 << 60,
            useFork=False,
            tcp_keepalive=None,
        )
