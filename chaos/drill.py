"""One drill, from an empty folder to a verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lmqcluster import LmqError

from .errors import DrillError
from .judges.checker import Judgement, judge
from .judges.digest import Digest, digests_agree
from .judges.verdict import Evidence, Verdict, decide
from .load.history import Event, History, now_us
from .load.short_histories import ShortHistories, judge_short
from .load.workload import ClientFactory, Workload, plain_client
from .nodes.cluster import Cluster
from .nodes.node_process import NodeProcess
from .nodes.programs import last_release, parse_program
from .nodes.running import RunningCluster
from .reports.figures import Latency, Window, errors_of, latencies, longest_pause_s, operations
from .reports.watch import Election, Sample, Watch
from .scenario import Limits, Scenario
from .stage import Stage
from .timeline import EndedFault, Timeline

__all__ = ["Result", "run_drill"]

_POLL_S = 0.2
_LEASE_SLACK_S = 2.0
"""Maximum delay of a lease expiry: a lost answer can keep a message from other consumers for that long."""
_PAUSE_AFTER_US = 5_000_000
"""A pause caused by a fault is looked for until this long after its end."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a drill.

    Attributes:
        scenario, seed, folder: what was run, and where its files are.
        verdict, reasons: `reasons` are for a verdict that is not a pass.
        judgement: of the history.
        short: whether the short history of each queue is linearizable.
        windows, elections: faults and new leaders in order of time.
        digests: of the members' states.
        operations: attempts by operation and outcome.
        latency: of pushes, ``all`` and ``calm`` (before the first fault).
        errors: returned to any client, by operation and code.
        notes: what faults did.
        version: of the nodes' program, and of the one that they were upgraded to.
        begin_us, seconds: when it began, and its total duration.
    """

    scenario: Scenario
    seed: int
    folder: Path
    verdict: Verdict
    reasons: list[str]
    judgement: Judgement
    short: dict[str, bool | None]
    windows: list[Window]
    elections: list[Election]
    digests: list[Digest]
    operations: dict[str, dict[str, int]]
    latency: dict[str, Latency | None]
    errors: Counter[str]
    notes: list[str]
    version: str
    begin_us: int
    seconds: float
    events: list[Event] = field(repr=False)


def run_drill(
    scenario: Scenario,
    *,
    seed: int,
    folder: Path,
    factory: ClientFactory = plain_client,
    old_program: str | None = None,
    time_factor: float = 1.0,
    running: RunningCluster | None = None,
) -> Result:
    """Start a cluster, load it, inject faults, end them, drain the queues, judge the history, stop the cluster.

    Args:
        scenario: the scenario.
        seed: determines every choice of the drill, but not its timing.
        folder: new and empty; histories and logs are kept there.
        factory: creates the clients of the load.
        old_program: an older ``lmq`` program for the nodes to start with: a command line, or ``git:`` and a revision.
            Without it, a rolling upgrade begins with the last release in git's history, if there is one.
        time_factor: factor for time limits, on a busy machine.
        running: a cluster to use instead of starting one; it is left as it was.

    Raises:
        DrillError: the cluster could not be started.
    """
    plan = scenario.cluster
    # Paths of nodes are passed in their environment and must not depend on the working directory.
    folder = folder.resolve()
    cluster = running or Cluster(
        folder,
        size=plan.nodes,
        spares=plan.spares,
        durability=plan.durability,
        memcache=plan.memcache,
        memory_mib=plan.memory_mib,
        names=plan.names,
        program=_first_program(scenario, old_program, folder / "older"),
    )
    return _Drill(scenario, seed, folder, time_factor).run(cluster, factory)


def _first_program(scenario: Scenario, old_program: str | None, folder: Path) -> tuple[str, ...] | None:
    """Return the program that the nodes run first; None for the installed one."""
    if old_program is not None:
        return parse_program(old_program, folder)
    return last_release(folder) if scenario.upgrades() else None


class _Drill:
    def __init__(self, scenario: Scenario, seed: int, folder: Path, time_factor: float) -> None:
        self._scenario = scenario
        self._seed = seed
        self._folder = folder
        self._time_factor = time_factor
        self._limits = _scale_limits(scenario.limits, time_factor)
        self._drained = False
        self._troubles: list[str] = []
        self._broken: list[str] = []

    def run(self, prepared: Cluster, factory: ClientFactory) -> Result:
        began_s, begin_us = time.monotonic(), now_us()
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            history = History(folder / "history.jsonl")
            stack.callback(history.close)
            short_history = History(folder / "short.jsonl")
            stack.callback(short_history.close)
            cluster = stack.enter_context(prepared)
            watch = stack.enter_context(Watch(cluster))
            version = _version(cluster)
            stage = self._stage(cluster, history)
            timeline = Timeline(self._scenario.plans(self._seed), stage, watch)
            ports = {site: cluster.http_ports(site) for site in cluster.sites}
            short = ShortHistories(ports, short_history, self._seed)
            asyncio.run(self._load(stage, watch, timeline, short, factory))
            agree, digests = digests_agree(cluster.nodes) if self._drained else (None, [])
            self._broken += _find_unexpected(cluster.everyone, stage.may_stop)
            last_version = _version(cluster) if self._drained else version
        events = history.events()
        windows = _windows(timeline.ended_faults, events, watch, cluster.sites)
        evidence = Evidence(
            judgement=judge(events, grace_s=self._scenario.load.lease_s + _LEASE_SLACK_S),
            drained=self._drained,
            digests_agree=agree,
            short=judge_short(short_history.events()),
            windows=windows,
            errors=errors_of(events, _unaffected_sites(cluster.sites, windows)),
            troubles=[*timeline.troubles, *self._troubles],
            broken=[*timeline.broken, *self._broken],
        )
        verdict, reasons = decide(evidence, self._limits)
        first_fault_us = min((window.begin_us for window in windows), default=1 << 62)
        return Result(
            scenario=self._scenario,
            seed=self._seed,
            folder=folder,
            verdict=verdict,
            reasons=reasons,
            judgement=evidence.judgement,
            short=dict(evidence.short),
            windows=windows,
            elections=watch.elections(),
            digests=digests,
            operations=operations(events),
            latency={"all": latencies(events), "calm": latencies(events, until_us=first_fault_us)},
            errors=errors_of(events, cluster.sites),
            notes=stage.notes,
            version=version if version == last_version else f"{version}, later {last_version}",
            begin_us=begin_us,
            seconds=time.monotonic() - began_s,
            events=events,
        )

    def _stage(self, cluster: Cluster, history: History) -> Stage:
        load = self._scenario.load
        rng = random.Random(f"drill {self._seed}")
        return Stage(cluster, rng, history, load.names, load.lease_s, self._time_factor)

    async def _load(
        self,
        stage: Stage,
        watch: Watch,
        timeline: Timeline,
        short: ShortHistories,
        factory: ClientFactory,
    ) -> None:
        """Load the cluster during the faults, then end all faults and drain."""
        sites = {site: stage.cluster.rpc_addresses(site) for site in stage.cluster.sites}
        workload = Workload(self._scenario.load, sites, stage.history, factory)
        try:
            await workload.prepare()
        except LmqError as exc:
            raise DrillError(f"the cluster does not serve requests: {exc}") from exc
        until, drained = asyncio.Event(), asyncio.Event()
        load = asyncio.create_task(workload.run(until, drained))
        short.start()
        try:
            faults = asyncio.create_task(asyncio.to_thread(timeline.run))
            await asyncio.sleep(self._scenario.load.seconds)
            await faults
            await asyncio.to_thread(self._mend, stage)
            await asyncio.to_thread(short.stop)
            until.set()
            # A message pushed after the queues were found empty would seem to be lost.
            pushed = asyncio.create_task(workload.pushed.wait())
            await asyncio.wait({load, pushed}, return_when=asyncio.FIRST_COMPLETED)
            pushed.cancel()
            await asyncio.to_thread(self._drain, stage, watch)
        finally:
            timeline.stop()
            until.set()
            drained.set()
            await asyncio.to_thread(short.stop)
            await load
        if isinstance(stage.cluster, RunningCluster):
            await workload.clean_up(await asyncio.to_thread(_own_queues, stage.cluster))

    def _mend(self, stage: Stage) -> None:
        stage.revive()
        self._broken += _find_ended(stage.cluster.nodes)
        stage.cluster.mend()

    def _drain(self, stage: Stage, watch: Watch) -> None:
        """Wait until all members are in step and report empty queues; consumers drain them."""
        deadline = time.monotonic() + self._limits.drain_s
        while time.monotonic() < deadline:
            begin_us, nodes = now_us(), stage.cluster.nodes
            time.sleep(_POLL_S)
            stage.revive()
            if gone := _find_ended(nodes):
                self._broken += gone
                return
            if _all_empty(nodes) and watch.in_step(nodes, watch.commit(), begin_us):
                self._drained = True
                stage.history.add(Event(op="drained", outcome="ok", time_us=begin_us, end_us=now_us(), process="drill"))
                return
        self._troubles.append(f"after {self._limits.drain_s:g} s: {_left(stage.cluster)}")


def _version(cluster: Cluster) -> str:
    return str(cluster.nodes[0].get_json("/v1/cluster")["version"])


def _scale_limits(limits: Limits, factor: float) -> Limits:
    def times(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * factor

    return replace(
        limits, pause_s=times(limits.pause_s), in_step_s=times(limits.in_step_s), drain_s=limits.drain_s * factor
    )


def _find_ended(nodes: Sequence[NodeProcess]) -> list[str]:
    """Return a description of each node that should run and does not."""
    return [
        f"{node.name} exited unexpectedly with {node.exit_code}\n{node.log_tail()}"
        for node in nodes
        if not node.running
    ]


def _all_empty(nodes: Sequence[NodeProcess]) -> bool:
    try:
        return not any(_count_held(node) for node in nodes)
    except (OSError, ValueError):
        return False


def _count_held(node: NodeProcess) -> dict[str, int]:
    """Return the number of messages in each queue of the load, as the node's replica has them."""
    held = {}
    for queue in node.get_json("/v1/queues")["queues"]:
        count = sum(queue[state] for state in ("ready", "delayed", "leased", "accumulating"))
        if count and queue["name"].startswith("drill."):
            held[queue["name"]] = count
    return held


def _own_queues(cluster: Cluster) -> list[str]:
    """Return the queues that the drill created."""
    names = [queue["name"] for queue in cluster.leader().get_json("/v1/queues")["queues"]]
    return [name for name in names if name.startswith(("drill.", "short."))]


def _left(cluster: Cluster) -> str:
    notes = []
    for node in cluster.nodes:
        try:
            notes.append(f"{node.name} holds {_count_held(node) or 'nothing'}")
        except (OSError, ValueError) as exc:
            notes.append(f"{node.name} does not answer ({exc})")
    return ", ".join(notes)


def _find_unexpected(nodes: Sequence[NodeProcess], may_stop: Collection[str]) -> list[str]:
    """Report unexpected errors of nodes, which are bugs whatever they caused; a bad disk is logged with an exception
    too.
    """
    found = []
    for node in nodes:
        text = node.log_path.read_text(errors="replace") if node.log_path.exists() else ""
        if "Traceback (most recent call last)" in text or ('"exception":' in text and node.name not in may_stop):
            found.append(f"{node.name} logged an unexpected error, see {node.log_path}")
    return found


def _unaffected_sites(sites: Sequence[str], windows: Sequence[Window]) -> list[str]:
    """Return the sites beside nodes that no fault hit."""
    hit = {name for window in windows for name in window.hit}
    return [site for site in sites if site not in hit]


def _windows(ended: Sequence[EndedFault], events: Sequence[Event], watch: Watch, sites: Sequence[str]) -> list[Window]:
    """Return the windows of the faults, with the effect on clients and members."""
    samples, elections = watch.samples(), watch.elections()
    ordered = sorted(ended, key=lambda one: one.window.begin_us)
    for one in ordered:
        window = one.window
        later = [other.window.begin_us for other in ordered if other.window.begin_us > window.end_us]
        until_us = min(later, default=1 << 62)
        window.in_step_s = _in_step_s(samples, one, until_us)
        new = [one for one in elections if window.begin_us < one.time_us < min(window.end_us, until_us)]
        window.leader_s = (new[0].time_us - window.begin_us) / 1e6 if new else None
        spared = _unaffected_sites(sites, [window])
        if spared:
            end_us = min(window.end_us + _PAUSE_AFTER_US, until_us)
            window.pause_s = longest_pause_s(events, spared, window.begin_us, end_us)
    return [one.window for one in ordered]


def _in_step_s(samples: Sequence[Sample], ended: EndedFault, until_us: int) -> float | None:
    """Return the time from the end of a fault until all members report one leader and have applied everything."""
    latest: dict[str, Any] = {}
    for sample in samples:
        if sample.time_us <= ended.window.end_us or sample.node not in ended.members:
            continue
        if sample.time_us >= until_us:
            return None
        latest[sample.node] = sample
        one_leader = len({(one.leader, one.term) for one in latest.values()}) == 1
        caught_up = all(one.ready and one.applied >= ended.commit for one in latest.values())
        if len(latest) == len(ended.members) and one_leader and caught_up:
            return (sample.time_us - ended.window.end_us) / 1e6
    return None
