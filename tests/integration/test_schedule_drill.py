"""A short run of the drill of schedules; `python -m tests.integration.schedule_drill --seconds 600` is the long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .cluster import Cluster
from .schedule_drill import LATE_S, Clocks, schedule_drill


def test_each_due_time_is_pushed_once_while_leaders_die_and_clocks_are_wrong(tmp_path: Path) -> None:
    cluster = Cluster(3, directory=tmp_path)
    clocks = Clocks(cluster, tmp_path)
    with cluster:
        drill = schedule_drill(cluster, clocks, seconds=30, count=30, seed=1, kill_period_s=10)
        book, wrong = asyncio.run(drill)
    print(book)
    assert wrong == []
    assert book.events["leaders killed"] >= 2
    assert book.events["clocks moved"] >= 2
    late = book.lateness_s()
    # Of each schedule of every second, all due times but those of the last five seconds.
    assert len(late) >= 30 * 25
    assert late[len(late) // 2] < LATE_S
    for node in cluster:
        assert "Traceback" not in node.log()
