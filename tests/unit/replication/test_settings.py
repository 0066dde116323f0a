"""When the settings of the log demand a snapshot."""

from __future__ import annotations

import pytest

from lmqcluster.replication.base.settings import RaftSettings

SETTINGS = RaftSettings(snapshot_log_bytes=100, snapshot_apply_s=5.0)


@pytest.mark.parametrize(
    ("log_bytes", "apply_s", "latest_bytes", "is_due"),
    [
        (100, 5.0, 0, False),
        (101, 0.0, 0, True),
        (101, 0.0, 101, False),
        (10, 5.1, 0, True),
        (10, 5.1, 10, False),
        (0, 5.1, 0, False),
    ],
)
def test_a_snapshot_is_due_once_the_log_is_long_or_slow_to_apply(
    log_bytes: int, apply_s: float, latest_bytes: int, is_due: bool
) -> None:
    assert SETTINGS.is_snapshot_due(log_bytes, apply_s, latest_bytes) is is_due
