"""The report in JSON."""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

from ..drill import Result

__all__ = ["as_table", "summary"]


def as_table(result: Result) -> dict[str, Any]:
    """Return all measurements and findings as JSON types."""
    scenario = result.scenario
    judgement = result.judgement
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": result.seed,
        "verdict": result.verdict,
        "reasons": result.reasons,
        "version": result.version,
        "durability": scenario.cluster.durability,
        "topology": {"nodes": scenario.cluster.nodes, "spares": scenario.cluster.spares},
        "load": asdict(scenario.load),
        "limits": asdict(scenario.limits),
        "seconds": round(result.seconds, 1),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "operations": result.operations,
        "messages": asdict(judgement.totals),
        "processes": {name: asdict(account) for name, account in judgement.by_process.items()},
        "faults": judgement.faults,
        "examples": judgement.examples,
        "undecided": judgement.undecided,
        "redelivered": judgement.redelivered,
        "short_histories": {
            "linearizable": sum(value is True for value in result.short.values()),
            "not_linearizable": [queue for queue, value in result.short.items() if value is False],
            "too_long": [queue for queue, value in result.short.items() if value is None],
        },
        "digests": [asdict(digest) for digest in result.digests],
        "windows": [asdict(window) for window in result.windows],
        "elections": [asdict(election) for election in result.elections],
        "latency_ms": {name: asdict(value) if value else None for name, value in result.latency.items()},
        "errors": dict(result.errors.most_common()),
        "notes": result.notes,
        "files": str(result.folder),
    }


def summary(results: list[Result]) -> dict[str, Any]:
    """Return all drills of a run."""
    verdicts = [result.verdict for result in results]
    return {
        "passed": verdicts.count("pass"),
        "failed": verdicts.count("fail"),
        "unknown": verdicts.count("unknown"),
        "drills": [as_table(result) for result in results],
    }
