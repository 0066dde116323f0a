"""Scenarios: TOML files with the load on a cluster, the faults and their times, and the limits that must hold.

title = "The leader is killed"
why = "The fault that every operator fears first."

[cluster]            # nodes, spares, durability
[load]               # see `workload.Load`
[[fault]]
kind = "kill"        # and its own fields, see `faults.base.KINDS`
at_s = 3.0
for_s = 4.0
[mix]                # instead of [[fault]], or in addition: faults drawn by the seed
[limits]             # see `Limits`
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

from .errors import ScenarioError
from .faults import client, disk, member, network, process, upgrade
from .faults.base import KINDS, Fault
from .faults.upgrade import RollingUpgrade
from .load import feature_work, open_reads
from .load.workload import Load

__all__ = ["ClusterPlan", "Limits", "Mix", "Plan", "Scenario", "find", "library", "read"]

FAULT_MODULES: Final = (
    client,
    disk,
    feature_work,
    member,
    network,
    open_reads,
    process,
    upgrade,
)
"""Importing them fills `KINDS`."""
_NODES_MAX = 7
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """The cluster to start.

    Attributes:
        nodes: founding members.
        spares: nodes that may join.
        durability: ``disk``, ``process`` or ``memory``.
        memcache: whether nodes also speak Kestrel's memcache protocol.
        memory_mib: memory limit of a node, an eighth of which is for long queues; 0 for the default.
        names: whether nodes know each other by names instead of numeric addresses.
    """

    nodes: int = 3
    spares: int = 0
    durability: str = "disk"
    memcache: bool = False
    memory_mib: int = 0
    names: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits in addition to safety, which is always checked. None is unlimited.

    Attributes:
        pause_s: maximum time that clients of unaffected nodes may wait for a push to be acknowledged.
        errors: maximum number of errors returned to these clients.
        in_step_s: time within which all members have caught up under one leader after the end of each fault.
        drain_s: time within which the queues are empty after the end of the last fault; beyond it, the verdict is
            ``unknown``.
    """

    pause_s: float | None = None
    errors: int | None = None
    in_step_s: float | None = 30.0
    drain_s: float = 90.0


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Faults drawn by the seed.

    Attributes:
        kinds: tables as in ``[[fault]]``, without ``at_s`` and ``for_s``, to draw from.
        gap_s: minimum and maximum pause between two faults.
        for_s: minimum and maximum duration.
    """

    kinds: tuple[Mapping[str, Any], ...]
    gap_s: tuple[float, float] = (1.0, 3.0)
    for_s: tuple[float, float] = (1.0, 4.0)


@dataclass(frozen=True)
class Plan:
    """A fault and its time, in seconds from the start of the load."""

    fault: Fault
    at_s: float
    for_s: float


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A drill as described by its file."""

    name: str
    title: str
    why: str
    suites: tuple[str, ...]
    cluster: ClusterPlan
    load: Load
    limits: Limits
    tables: tuple[Mapping[str, Any], ...] = ()
    mix: Mix | None = None
    source: str = field(default="", repr=False)

    def plans(self, seed: int) -> list[Plan]:
        """Return the faults in chronological order, with those of the mix drawn by the seed."""
        tables = list(self.tables)
        if self.mix is not None:
            tables += _draw(self.mix, self.load.seconds, random.Random(f"mix {seed}"))
        return sorted((_plan(self.source, table) for table in tables), key=lambda plan: plan.at_s)

    def upgrades(self) -> bool:
        """Return whether the nodes are upgraded from an older program."""
        return any(table.get("kind") == RollingUpgrade.kind for table in self.tables)


def library() -> dict[str, Path]:
    """Return the files of the included scenarios, by name."""
    folder = Path(str(resources.files(__package__))) / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find(name: str) -> Scenario:
    """Return a scenario by its name in the library, or by the path of a file.

    Raises:
        ScenarioError: it does not exist or is invalid.
    """
    known = library()
    path = known.get(name) or Path(name)
    if name not in known and not path.is_file():
        raise ScenarioError(f"no scenario or file is named {name!r}; lmq-drill list shows the scenarios")
    return read(path)


def read(path: Path) -> Scenario:
    """Read and validate a scenario.

    Raises:
        ScenarioError: it is invalid; the text names the file and the key.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ScenarioError(f"{path}: {exc}") from exc
    source = str(path)
    known = {"title", "why", "suites", "cluster", "load", "limits", "fault", "mix"}
    if odd := sorted(set(table) - known):
        raise ScenarioError(f"{source}: unknown key {odd[0]}; the keys are {', '.join(sorted(known))}")
    if not isinstance(table.get("title"), str):
        raise ScenarioError(f"{source}: title is missing")
    scenario = Scenario(
        name=path.stem,
        title=table["title"],
        why=str(table.get("why", "")),
        suites=tuple(table.get("suites", ("full",))),
        cluster=_build(ClusterPlan, table.get("cluster", {}), source, "cluster"),
        load=_build(Load, table.get("load", {}), source, "load"),
        limits=_build(Limits, table.get("limits", {}), source, "limits"),
        tables=tuple(table.get("fault", ())),
        mix=_mix(table["mix"], source) if "mix" in table else None,
        source=source,
    )
    _check(scenario)
    return scenario


def _check(scenario: Scenario) -> None:
    where = scenario.source
    if not 2 <= scenario.cluster.nodes <= _NODES_MAX:
        raise ScenarioError(f"{where}: cluster.nodes must be 2 to {_NODES_MAX}")
    if scenario.cluster.durability not in {"disk", "process", "memory"}:
        raise ScenarioError(f"{where}: cluster.durability must be disk, process or memory")
    load = scenario.load
    if min(load.seconds, load.rate, load.lease_s, load.timeout_s, load.shared + load.stored + load.ordered) <= 0:
        raise ScenarioError(f"{where}: load: seconds, rate, lease_s, timeout_s and the count of queues must be above 0")
    for plan in scenario.plans(seed=0):
        if not 0 <= plan.at_s < scenario.load.seconds:
            raise ScenarioError(f"{where}: fault {plan.fault.kind}: at_s must be within the load's seconds")


def _mix(table: Any, source: str) -> Mix:
    values = dict(table) if isinstance(table, dict) else {}
    kinds = values.get("kinds")
    if not kinds:
        raise ScenarioError(f"{source}: mix.kinds must be a list of faults to draw from")
    for name in ("gap_s", "for_s"):
        if name in values:
            values[name] = tuple(values[name])
    return _build(Mix, {**values, "kinds": tuple(kinds)}, source, "mix")


def _draw(mix: Mix, seconds: float, rng: random.Random) -> list[Mapping[str, Any]]:
    tables: list[Mapping[str, Any]] = []
    at_s = rng.uniform(*mix.gap_s)
    while at_s < seconds - 1:
        for_s = rng.uniform(*mix.for_s)
        tables.append({**rng.choice(mix.kinds), "at_s": at_s, "for_s": for_s})
        at_s += for_s + rng.uniform(*mix.gap_s)
    return tables


def _plan(source: str, table: Mapping[str, Any]) -> Plan:
    values = dict(table)
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise ScenarioError(f"{source}: unknown fault kind {kind!r}; the kinds are {', '.join(sorted(KINDS))}")
    try:
        at_s, for_s = float(values.pop("at_s")), float(values.pop("for_s", 0.0))
    except (KeyError, TypeError, ValueError) as exc:
        raise ScenarioError(
            f"{source}: fault {kind}: at_s is required, in seconds, and for_s must be a number"
        ) from exc
    fault = _build(KINDS[kind], values, source, f"fault {kind}")
    if problem := fault.check():
        raise ScenarioError(f"{source}: fault {kind}: {problem}")
    return Plan(fault, at_s, for_s)


def _build(kind: type[T], values: Any, source: str, where: str) -> T:
    """Return an instance of a dataclass from a table, with every key and type validated."""
    if not isinstance(values, dict):
        raise ScenarioError(f"{source}: {where} must be a table")
    known = {item.name: item for item in fields(kind) if item.init}  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in known:
            raise ScenarioError(
                f"{source}: unknown key {where}.{name}; the keys are {', '.join(sorted(known)) or 'none'}"
            )
        default = known[name].default
        if default is MISSING or default is None:
            continue
        number = isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
        if not number and type(value) is not type(default):
            raise ScenarioError(f"{source}: {where}.{name} must have the type of {default!r}, not {value!r}")
    return kind(**values)
