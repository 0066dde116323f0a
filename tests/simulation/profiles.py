"""The kinds of runs: how many nodes, which faults, how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lmqcluster.core import State

__all__ = ["PROFILES", "Profile", "profile_for"]

NET_FAULTS = {
    "slow": 4.0,
    "cut": 2.0,
    "isolate": 2.0,
    "split": 1.0,
    "one_way": 2.0,
    "flap": 1.0,
    "pause": 2.0,
}
# Lower weights, so that more faults of the other kinds happen while there is a leader.
SOME_NET_FAULTS = {kind: weight / 4 for kind, weight in NET_FAULTS.items()}


@dataclass(frozen=True)
class Profile:
    """Times are in virtual seconds. `faults` maps the nemesis' methods to weights."""

    name: str
    nodes: int = 3
    duration_s: float = 30.0
    quiet_s: float = 40.0
    delay_s: tuple[float, float] = (0.0002, 0.002)
    slow_s: tuple[float, float] = (0.05, 0.45)
    faults: dict[str, float] = field(default_factory=dict)
    fault_every_s: float = 1.0
    propose_every_s: float = 0.044
    command_bytes: tuple[int, int] = (10, 600)
    log_entries: int | None = None
    """Number of entries to keep before a snapshot replaces them; None keeps all."""
    durability: str = "memory"
    spares: int = 0
    """Machines that are not members at first."""
    program: int | None = None
    """The newest machine version that the programs understand with which all machines begin. The program under test stands
    in for the next release then, and understands one version more. None: all machines run the program under test.
    """
    quorum_lost_s: float | None = None
    """Time that a leader continues without a majority; None as in production. No guarantee may depend on it."""


def _on_disk(name: str, faults: dict[str, float], **options: Any) -> Profile:
    """Return a profile of durability ``disk`` that takes snapshots and compacts the log all the time."""
    return Profile(name, faults={**SOME_NET_FAULTS, **faults}, durability="disk", log_entries=60, **options)


CRASHES = {"restart": 2.0, "crash_in_writing": 3.0, "crash_in_opening": 1.0}
POWER = {"power": 2.0, "power_in_writing": 3.0}
PROFILES = {
    profile.name: profile
    for profile in (
        # Durability memory.
        Profile("calm", faults={"slow": 1.0}, fault_every_s=0.5),
        Profile("net", faults=NET_FAULTS),
        Profile("net5", nodes=5, faults=NET_FAULTS, fault_every_s=0.6),
        # Every link is 50 ms slower in each direction, without other faults: elections and commits must still work.
        Profile("delay50", delay_s=(0.05, 0.06)),
        Profile("snapshot", faults=NET_FAULTS, log_entries=30),
        Profile("restart", faults={**NET_FAULTS, "restart": 5.0}),
        Profile("member", faults={**NET_FAULTS, "membership": 8.0}, spares=2),
        Profile("churn", faults={**NET_FAULTS, "membership": 5.0, "restart": 4.0}, spares=2, log_entries=60),
        # Durability process: the log survives the end of the process, but not that of the machine.
        Profile(
            "process",
            faults={**SOME_NET_FAULTS, "restart": 3.0, "crash_in_writing": 2.0, "power": 3.0, "witness": 3.0},
            durability="process",
            log_entries=60,
        ),
        # The same without any snapshot, as in every new cluster.
        Profile(
            "clockall",
            faults={**SOME_NET_FAULTS, "clock_jump": 2.0, "restart_all": 2.0, "restart": 1.0},
            durability="process",
        ),
        # Leaders that notice late that they were deposed, slow answers, and members that forget, several at once.
        Profile(
            "forgetful",
            faults={"slow": 1.0, "late": 4.0, "usurp": 2.0, "witness": 4.0, "at_election": 2.0, "restart": 1.0},
            quorum_lost_s=6.0,
        ),
        # Durability disk.
        _on_disk("disk", NET_FAULTS),
        _on_disk("crash", CRASHES),
        _on_disk("power", POWER),
        _on_disk("powerall", {**POWER, "power_all": 2.0}),
        _on_disk("full", {"full": 4.0, "bad_write": 3.0, "restart": 0.5, "power": 1.0}),
        _on_disk("slowdisk", {"slow_disk": 5.0, "power": 1.0, "restart": 1.0}),
        _on_disk("damage", {"damage": 4.0, "crash_in_opening": 1.0, "crash_in_writing": 1.0, "power_in_writing": 1.0}),
        # Pages: files are damaged, several at a time, amid crashes and power failures.
        _on_disk("paging", {"damage_pages": 5.0, **CRASHES, **POWER, "slow_disk": 1.0, "full": 1.0, "snapshot": 1.0}),
        _on_disk("lostdisk", {"lose_disk": 4.0, "crash_in_opening": 1.0, "power_in_writing": 2.0}),
        # A lost disk loses the identity of its lives; a wrong clock does not.
        _on_disk("lostclock", {"lose_disk": 4.0, "clock_jump": 4.0, "power_in_writing": 1.0}),
        _on_disk("clock", {"clock_jump": 4.0, "restart": 2.0, "restart_all": 1.0, "transfer": 2.0, "power": 1.0}),
        _on_disk("join", {"join": 5.0, "leave": 4.0, "crash_in_writing": 2.0, "snapshot": 1.0}, spares=5),
        _on_disk("members", {"membership": 6.0, **CRASHES, **POWER}, spares=2),
        # Logs that conflict over many entries, and changes, crashes and lost disks at critical moments.
        Profile(
            "rivals",
            faults={
                "rival": 6.0,
                "usurp": 4.0,
                "witness": 1.0,
                "at_election": 3.0,
                "restart": 1.0,
                "crash_in_writing": 1.0,
            },
            durability="disk",
            log_entries=15,
            spares=2,
            quorum_lost_s=6.0,
        ),
        _on_disk("transfer", {"transfer": 6.0, "snapshot": 2.0, "crash_in_writing": 1.0}),
        _on_disk("rolling", {"rolling": 1.0, "snapshot": 1.0}, fault_every_s=2.0),
        # Machines are upgraded one after the other, while others are down or unreachable.
        _on_disk("upgrade", {"renew": 1.0, "restart": 2.0, "restart_all": 2.0}, program=State.VERSION_MAX),
        _on_disk(
            "five",
            {
                "damage": 2.0,
                "lose_disk": 1.0,
                "power_all": 0.5,
                "slow_disk": 1.0,
                "full": 1.0,
                "rival": 4.0,
                **CRASHES,
                **POWER,
            },
            nodes=5,
            fault_every_s=0.6,
        ),
        Profile(
            "single",
            nodes=1,
            faults={**CRASHES, **POWER, "full": 1.0, "slow_disk": 1.0, "clock_jump": 1.0, "snapshot": 1.0},
            durability="disk",
            log_entries=60,
        ),
    )
}

NODE_TIME = 2 / 3
NODE_LOAD = 1 / 3


def profile_for(subject: str, name: str) -> Profile:
    """Return the profile `name` as `subject` runs it.

    A whole node costs several times as much as its Raft core. Its runs therefore have the same number of faults in less
    time, and fewer proposals on a network that is slower in proportion: a fault strikes the same amount of work in
    flight. Its log is shorter in the same proportion.
    """
    profile = PROFILES[name]
    if subject not in {"node", "queues"}:
        return profile
    low_s, high_s = profile.delay_s
    return replace(
        profile,
        duration_s=profile.duration_s * NODE_TIME,
        fault_every_s=profile.fault_every_s * NODE_TIME,
        delay_s=profile.delay_s if name == "delay50" else (low_s / NODE_LOAD, high_s / NODE_LOAD),
        propose_every_s=profile.propose_every_s / NODE_LOAD,
        log_entries=profile.log_entries and round(profile.log_entries * NODE_LOAD),
    )
