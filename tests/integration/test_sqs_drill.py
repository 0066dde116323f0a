"""A short run of the drill of the SQS port; `python -m tests.integration.sqs_drill --kills 20` is the long one."""

from __future__ import annotations

from pathlib import Path

from .sqs_drill import drill_cluster, sqs_drill


def test_kills_and_lost_answers_lose_double_and_hide_nothing(tmp_path: Path) -> None:
    with drill_cluster(tmp_path, tls=False) as (cluster, target):
        book = sqs_drill(cluster, target, kills=3, seconds=12, seed=1)
        assert book.violations == []
        assert book.kills == 3
        for node in cluster:
            assert "Traceback" not in node.log()
