"""``lmq-admin check``: health checks for people and for monitoring systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, complete_queue, queue_text, target_options
from ...shared.errors import ExitCode
from ...shared.output import Column, human_bytes, plural, print_json
from ..queues.queue_list import queue_exists
from .monitoring import Finding, Limits, MonitoringCommand, State, grade, line_of, worst

__all__ = ["check"]

_COLUMNS: Final = [Column("Check", "check"), Column("", "ok"), Column("Finding", "finding")]
_STATES = "\b\nExit codes of check cluster and check queue:\n  0  OK\n  1  WARNING\n  2  CRITICAL\n  3  UNKNOWN"
Thresholds = Mapping[str, float | None]


@click.group(
    invoke_without_command=True,
    epilog=_STATES,
    short_help="Check cluster health; exits non-zero on problems, for monitoring.",
)
@reads(_COLUMNS)
def check(target: Target) -> Report:
    """Check the health of the cluster, whether the node may be stopped, and which queues need attention.

    Exits with 69 on problems of the cluster or the node, and with 1 if only queues need attention: messages that wait
    too long, new dead letters, or many returned deliveries. The node's options attention_* set the thresholds.

    `check cluster` and `check queue` are for monitoring systems: they print one line with figures, as Nagios plugins
    do.
    """
    answer = target.api.get("/v1/cluster/check")
    rows = [[one["name"], "ok" if one["ok"] else "PROBLEM", one["detail"]] for one in answer["checks"]]
    well = all(one["ok"] for one in answer["checks"])
    attention = answer["attention"]
    rows += [[f"queue {queue_text(one['queue'])}", "ATTENTION", one["detail"]] for one in attention["queues"]]
    unlisted = sum(attention["totals"].values()) - len(attention["queues"])
    remark = f"... and {plural(unlisted, 'more finding')} about queues." if unlisted else ""
    code: int = ExitCode.DONE if not attention["queues"] else State.WARNING
    return Report(answer, _COLUMNS, rows, remark=remark, exit_code=code if well else ExitCode.UNAVAILABLE)


def _thresholds(
    name: str, what: str, *, metavar: str = "N", warning: float | None = None, critical: float | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options ``--NAME-warning`` and ``--NAME-critical``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for level, default in (("critical", critical), ("warning", warning)):
            function = click.option(
                f"--{name}-{level}",
                type=click.FloatRange(0),
                default=default,
                show_default=default is not None,
                metavar=metavar,
                help=f"{level.upper()} if {what}.",
            )(function)
        return function

    return add


@check.command(
    "cluster", cls=MonitoringCommand, epilog=_STATES, short_help="Leader, members, lag, memory, disk: one line."
)
@_thresholds("lag", "a node is N or more log entries behind", warning=1000, critical=100_000)
@_thresholds("memory", "N % or more of memory_bytes_max is used", warning=80, critical=95)
@_thresholds("disk", "N % or more of the disk is used", warning=85, critical=95)
@_thresholds("disk-limit", "N % or more of disk_bytes_max is used", warning=80, critical=95)
@_thresholds("quota", "N % or more of a quota of a principal is used", warning=80, critical=95)
@target_options
def check_cluster(target: Target, **limits: float | None) -> int:
    """Check the cluster as this node sees it, and the node's own memory and disk.

    CRITICAL without a quorum or leader, or if the node does not answer; WARNING if a member is missing.

    \b
    Example:
      lmq-admin check cluster --disk-warning 70
    """
    checks = {one["name"]: one for one in target.api.get("/v1/cluster/check")["checks"]}
    return _end(target, [*_cluster_findings(checks, limits)])


def _cluster_findings(checks: Mapping[str, Any], limits: Thresholds) -> Iterator[Finding]:
    leader, members = checks["leader"], checks["members"]
    yield Finding(State.OK if leader["ok"] else State.CRITICAL, leader["detail"])
    missing = members["figures"]["members"] - members["figures"]["able"]
    yield grade("missing_members", missing, members["detail"], (1, None))
    lag = checks["lag"]
    yield grade("lag", lag["figures"]["entries"], lag["detail"], _limits(limits, "lag"))
    memory, disk = checks["memory"], checks["disk"]
    used = 100 * memory["figures"]["used_bytes"] / memory["figures"]["max_bytes"]
    yield grade("memory", round(used, 1), memory["detail"], _limits(limits, "memory"), unit="%")
    full = 100 - 100 * disk["figures"]["free_bytes"] / disk["figures"]["total_bytes"]
    yield grade("disk", round(full, 1), disk["detail"], _limits(limits, "disk"), unit="%")
    kept, quota = checks["disk limit"], checks["quota"]
    used, most = kept["figures"]["used_bytes"], kept["figures"]["max_bytes"]
    share = 100 * used / most if most else 100.0
    yield grade("disk_limit", round(share, 1), kept["detail"], _limits(limits, "disk_limit"), unit="%")
    share = 100 * quota["figures"]["used"] / quota["figures"]["max"]
    yield grade("quota", round(share, 1), quota["detail"], _limits(limits, "quota"), unit="%")


@check.command(
    "queue", cls=MonitoringCommand, epilog=_STATES, short_help="One queue's messages and their age: one line."
)
@click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
@_thresholds("ready", "N or more messages are ready")
@_thresholds("leased", "N or more messages are leased")
@_thresholds("age", "the oldest message has waited for S or more seconds", metavar="S")
@_thresholds("bytes", "the messages have N or more bytes")
@click.option("--absent-ok", is_flag=True, help="A queue that does not exist is OK, not UNKNOWN.")
@target_options
def check_queue(target: Target, name: str, absent_ok: bool, **limits: float | None) -> int:
    """Check the messages of one queue against thresholds; without thresholds, only print the figures.

    \b
    Example:
      lmq-admin check queue orders --ready-warning 1000 --age-critical 60
    """
    if absent_ok and not queue_exists(target.api, name):
        return _end(target, [Finding(State.OK, f"queue {name} does not exist")])
    return _end(target, [*_queue_findings(name, target.api.get(_path(name)), limits)])


def _queue_findings(name: str, found: Mapping[str, Any], limits: Thresholds) -> Iterator[Finding]:
    ready, leased, size = found["ready"], found["leased"], found["bytes"]
    if found["stale"]:
        yield Finding(State.CRITICAL, "the node is cut off from its cluster: its figures may be old")
    yield grade(
        "ready", ready, f"{plural(ready, 'message waits', 'messages wait')} in queue {name}", _limits(limits, "ready")
    )
    yield grade("leased", leased, f"{leased:,} are leased", _limits(limits, "leased"))
    age = found["oldest_age_s"] or 0.0
    yield grade("oldest_age", age, f"the oldest has waited {age:.1f} s", _limits(limits, "age"), unit="s")
    yield grade("size", size, f"total size {human_bytes(size)}", _limits(limits, "bytes"), unit="B")


def _limits(limits: Thresholds, name: str) -> Limits:
    return limits[f"{name}_warning"], limits[f"{name}_critical"]


def _end(target: Target, findings: list[Finding]) -> int:
    state = worst(findings)
    if target.as_json:
        figures = {one.name: one.value for one in findings if one.name}
        texts = [{"state": one.state.name, "detail": one.text} for one in findings]
        print_json({"state": state.name, "findings": texts, "figures": figures})
    else:
        print(line_of(findings))
    return state


def _path(name: str) -> str:
    return f"/v1/queues/{Api.segment(name)}"
