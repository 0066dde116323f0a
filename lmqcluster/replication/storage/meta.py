"""The durable identity of a node: id, incarnation, Raft's term and vote, and the trust in its data.

It is small and rarely written, so it is kept twice. Either file is enough: both are on disk before any message that
shows a change leaves the node, so even the older of the two is recent enough.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
import xxhash

from .io.disk import DamagedFileError, Disk

__all__ = ["FILE_NAMES", "INCARNATION_STEP", "NodeMeta", "boot_id"]

FORMAT = 1
"""The format that this program writes, and the only one that it reads."""
FILE_NAMES = ("node.json", "node.copy.json")
INCARNATION_STEP = 1 << 20
"""Most milliseconds between the last known incarnation and the next one, if the clock cannot provide it."""

log = structlog.get_logger("lmq.storage")


class NodeMeta:
    """The durable identity of a node.

    Attributes:
        node_id: member id, constant as long as the data directory exists.
        origin: the name under which the cluster counts the batches of this data directory. It is drawn with the folder, so
            that a node that has lost its disk is not mistaken for its former self.
        incarnation: grows with every start, so that batches of earlier runs can be distinguished.
        term, vote: Raft's durable state.
        members: id to Raft address of the members at the beginning of the log; without a durable log, the last ones committed.
        durability: mode of the last run; None before the first run has made its files.
        boot: the boot of the operating system to which the last run belonged.
        wipe: the log and snapshots are void and must be removed before anything else.
        joining: the log begins before the cluster's first entry: all data comes from a snapshot.
        recovering: the node has lost entries that it may have acknowledged.
        founding: the node was founded by a list of peers and has not met a leader since, so it may be a member that has lost
            its disk, its term and its vote included.
        salt_due: deliveries may be lost (see `StaleReceipts`); then the end of the log when that was found.
        left: the node has left its cluster, or was removed, and belongs to none until it joins one.
        restarted: whether the folder holds an earlier run of this node.
    """

    def __init__(self, disk: Disk, fields: Mapping[str, Any], *, restarted: bool) -> None:
        self._disk = disk
        self._revision: int = fields["revision"]
        self.node_id: str = fields["id"]
        self.origin: str = fields["origin"]
        self.incarnation: int = fields["incarnation"]
        self.term: int = fields["term"]
        self.vote: str | None = fields["vote"]
        self.members: dict[str, str] = dict(fields["members"])
        self.durability: str | None = fields["durability"]
        self.boot: str = fields["boot"]
        self.wipe: bool = fields["wipe"]
        self.joining: bool = fields["joining"]
        self.recovering: bool = fields["recovering"]
        self.founding: bool = fields["founding"]
        self.left: bool = fields["left"]
        self.salt_due: int | None = fields["salt_due"]
        self.restarted = restarted

    @classmethod
    def read(cls, disk: Disk) -> NodeMeta | None:
        """Return the identity of an earlier run, None if there was none.

        Raises:
            DamagedFileError: neither of its files can be read, so the node could vote twice.
            OSError: the folder cannot be read.
        """
        good: list[dict[str, Any]] = []
        damaged: dict[str, tuple[str, str]] = {}
        names = set(disk.names())
        for name in FILE_NAMES:
            if name in names:
                try:
                    good.append(_read(disk, name))
                except DamagedFileError as exc:
                    damaged[name] = (exc.file, exc.reason)
        if damaged and not good:
            # Raises the same error again.
            good.append(_read(disk, next(iter(damaged))))
        for file, reason in damaged.values():
            log.warning("damaged file replaced by its copy", file=file, reason=reason)
        return cls(disk, max(good, key=lambda fields: fields["revision"]), restarted=True) if good else None

    @classmethod
    def open(cls, disk: Disk, new_id: str, founders: Mapping[str, str] | None) -> NodeMeta:
        """Begin the next incarnation after an earlier run, or the first run.

        Args:
            disk: the data directory.
            new_id: id of a first run.
            founders: members of a first run, id to Raft address; empty for a node that is to join a cluster. None: they
                are not known yet, see `found`.

        Raises:
            DamagedFileError: see `read`.
            OSError: the folder cannot be read or written.
        """
        meta = cls.read(disk)
        joins, founding = founders == {}, founders is None or len(founders) > 1
        members = founders or {}
        if meta is None:
            first = _first_fields(new_id, members)
            meta = cls(disk, first, restarted=False)
            meta.founding = founding
            meta.left = meta.joining = joins
        elif meta.awaits_founders:
            # It has never been a member, so its configuration counts and not its past.
            meta.begin_again(new_id, members, joining=joins, left=joins, founding=founding)
        meta.incarnation = _later(meta.incarnation)
        meta.save()
        return meta

    @property
    def awaits_founders(self) -> bool:
        """Return whether the node is to found a cluster and does not know the other founders yet."""
        return self.founding and not self.joining and not self.members

    def found(self, members: Mapping[str, str]) -> None:
        """Make the founding members durable, id to Raft address; they are final."""
        if not self.awaits_founders:
            raise ValueError("the founding members are known already")
        self.members = dict(members)
        self.save()

    def begin_again(
        self,
        node_id: str,
        members: Mapping[str, str],
        *,
        joining: bool,
        left: bool = False,
        founding: bool = False,
    ) -> None:
        """Replace this identity and its past by another one; the log is wiped at the next opening."""
        self.node_id = node_id
        self.origin = _fresh_origin(node_id)
        self.incarnation = _later(self.incarnation)
        self.term, self.vote = 0, None
        self.members = dict(members)
        self.durability, self.wipe, self.joining = None, True, joining
        self.founding = founding
        self.recovering = self.restarted = False
        self.left = left
        self.salt_due = None
        self.save()

    def discard_data(self) -> None:
        """Void log and snapshots but keep identity, term and vote; the leader sends everything again, with the members."""
        self.wipe = self.joining = self.recovering = True
        self.members = {}
        self.save()

    def outlive(self, incarnation: int) -> None:
        """Begin an incarnation above one that the cluster knows of this node and that is not below the present one."""
        self.incarnation = _after(incarnation)
        self.save()

    def save_vote(self, term: int, vote: str | None) -> None:
        """Make term and vote durable."""
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            self.save()

    def save_salt_due(self, index: int | None) -> None:
        """Make durable whether the salt has to be renewed."""
        if index != self.salt_due:
            self.salt_due = index
            self.save()

    def save_members(self, members: Mapping[str, str]) -> None:
        """Make the member list durable."""
        if members != self.members:
            self.members = dict(members)
            self.save()

    def mark_trusted(self) -> None:
        """Record that the node has caught up with a leader and lacks no entries any more."""
        if self.recovering or self.founding:
            self.recovering = self.founding = False
            self.save()

    def save(self) -> None:
        """Replace both files.

        Raises:
            OSError: they cannot be written; the node must stop.
        """
        self._revision += 1
        fields = {
            "revision": self._revision,
            "id": self.node_id,
            "origin": self.origin,
            "incarnation": self.incarnation,
            "term": self.term,
            "vote": self.vote,
            "members": self.members,
            "durability": self.durability,
            "boot": self.boot,
            "wipe": self.wipe,
            "joining": self.joining,
            "recovering": self.recovering,
            "founding": self.founding,
            "left": self.left,
            "salt_due": self.salt_due,
        }
        text = json.dumps({"format": FORMAT, "checksum": _checksum(fields), "node": fields}, indent=2, sort_keys=True)
        for name in FILE_NAMES:
            file = self._disk.create(f"{name}.tmp")
            try:
                file.write_at(0, text.encode())
                file.sync()
            finally:
                file.close()
            self._disk.rename(f"{name}.tmp", name)
            self._disk.sync()


def boot_id() -> str:
    """Return a name of this run of the operating system; empty where it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _later(incarnation: int) -> int:
    """Return the incarnation of a run that begins now; wall-clock milliseconds grow even if the folder is an old copy."""
    now_ms = int(time.time() * 1000)
    return now_ms if now_ms > incarnation else _after(incarnation)


def _after(incarnation: int) -> int:
    """Return a later incarnation, by a random step: the next one may belong to a run unknown to this folder."""
    return incarnation + 1 + secrets.randbelow(INCARNATION_STEP)


def _fresh_origin(node_id: str) -> str:
    return f"{node_id}:{secrets.token_hex(4)}"


def _first_fields(node_id: str, founders: Mapping[str, str]) -> dict[str, Any]:
    return {
        "revision": 0,
        "id": node_id,
        "origin": _fresh_origin(node_id),
        "incarnation": 0,
        "term": 0,
        "vote": None,
        "members": dict(founders),
        "durability": None,
        "boot": "",
        "wipe": False,
        "joining": False,
        "recovering": False,
        "founding": False,
        "left": False,
        "salt_due": None,
    }


def _checksum(fields: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(fields, sort_keys=True).encode())


_TYPES: dict[str, tuple[type, ...]] = {
    "revision": (int,),
    "id": (str,),
    "origin": (str,),
    "incarnation": (int,),
    "term": (int,),
    "vote": (str, type(None)),
    "members": (dict,),
    "durability": (str, type(None)),
    "boot": (str,),
    "wipe": (bool,),
    "joining": (bool,),
    "recovering": (bool,),
    "founding": (bool,),
    "left": (bool,),
    "salt_due": (int, type(None)),
}


def _read(disk: Disk, name: str) -> dict[str, Any]:
    file = disk.open(name)
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        document = json.loads(data)
        file_format: int = document["format"]
        fields: dict[str, Any] = document["node"]
        sound = document["checksum"] == _checksum(fields)
    except (ValueError, LookupError, TypeError) as exc:
        raise DamagedFileError(disk.path(name), 0, f"it is not a node's identity ({exc})") from exc
    if file_format != FORMAT:
        reason = f"it has format {file_format}, this program reads format {FORMAT}"
        raise DamagedFileError(disk.path(name), 0, reason)
    if not sound:
        raise DamagedFileError(disk.path(name), 0, "its checksum is wrong")
    if not _is_complete(fields):
        raise DamagedFileError(disk.path(name), 0, "its fields are not those of a node's identity")
    return fields


def _is_complete(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are exactly those of an identity, each of its type."""
    return fields.keys() == _TYPES.keys() and all(type(fields[key]) in kinds for key, kinds in _TYPES.items())
