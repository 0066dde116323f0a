"""The verdict of a drill: ``pass``, ``fail``, or ``unknown`` if evidence is missing, for example for lack of progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..reports.figures import Window
from ..scenario import Limits
from .checker import Judgement

__all__ = ["FAIL", "PASS", "UNKNOWN", "Evidence", "Verdict", "decide"]

Verdict = Literal["pass", "fail", "unknown"]
PASS: Final = "pass"  # noqa: S105  a verdict
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence for the verdict.

    Attributes:
        judgement: the judgement of the history.
        drained: whether the queues were found empty.
        digests_agree: whether all members had the same state; None if undecided.
        short: for each queue of the linearizability test, whether its history is linearizable; None if undecided.
        windows: one for each fault.
        errors: returned to clients beside unaffected nodes.
        troubles: reasons why the drill did not run as planned.
        broken: guarantees that nodes violated.
    """

    judgement: Judgement
    drained: bool
    digests_agree: bool | None
    short: Mapping[str, bool | None]
    windows: Sequence[Window]
    errors: Counter[str]
    troubles: Sequence[str]
    broken: Sequence[str]


def decide(evidence: Evidence, limits: Limits) -> tuple[Verdict, list[str]]:
    """Return the verdict, and the reasons for one that is not a pass.

    Any violation gives ``fail``, even if something else is undecided.
    """
    guilt = [*_safety(evidence), *evidence.broken, *_beyond_limits(evidence, limits)]
    if guilt:
        return FAIL, guilt
    doubts = list(_doubts(evidence))
    return (UNKNOWN, doubts) if doubts else (PASS, [])


def _safety(evidence: Evidence) -> list[str]:
    judgement = evidence.judgement
    found = [f"{name.replace('_', ' ')}: {count:,}" for name, count in judgement.faults.items() if count]
    if judgement.totals.lost_where:
        found[0] += f" ({judgement.totals.lost_where})"
    broken = [queue for queue, linearizable in evidence.short.items() if linearizable is False]
    if broken:
        found.append(f"not linearizable: {', '.join(broken[:5])}")
    if evidence.digests_agree is False:
        found.append("the members hold different states")
    return found


def _beyond_limits(evidence: Evidence, limits: Limits) -> list[str]:
    found = []
    for window in evidence.windows:
        if limits.pause_s is not None and window.pause_s is not None and window.pause_s > limits.pause_s:
            found.append(
                f"{window.kind}: clients of unaffected nodes waited {window.pause_s:.2f} s, limit {limits.pause_s:g} s"
            )
        if limits.in_step_s is not None and window.in_step_s is not None and window.in_step_s > limits.in_step_s:
            found.append(
                f"{window.kind}: the replicas caught up after {window.in_step_s:.2f} s, limit {limits.in_step_s:g} s"
            )
    if limits.errors is not None and evidence.errors.total() > limits.errors:
        text = ", ".join(f"{count} {name}" for name, count in evidence.errors.most_common())
        found.append(f"errors for clients of unaffected nodes: {text}, limit {limits.errors}")
    return found


def _doubts(evidence: Evidence) -> list[str]:
    totals, judgement = evidence.judgement.totals, evidence.judgement
    doubts = {
        "no push was acknowledged": not totals.acknowledged,
        "nothing was delivered": not totals.delivered,
        "the queues did not become empty in time": not evidence.drained,
        f"{judgement.undecided:,} acknowledged messages were not delivered, but not all queues were drained": (
            judgement.undecided
        ),
        "the states of the members could not be compared": evidence.digests_agree is None,
        "no short history could be judged": not any(result is not None for result in evidence.short.values()),
    }
    return [*evidence.troubles, *(text for text, applies in doubts.items() if applies)]
