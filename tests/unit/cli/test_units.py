"""Times and sizes on command lines."""

from __future__ import annotations

import click
import pytest
from lmqcluster_cli.shared.units import duration, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("1.5", 1.5),
        (".5s", 0.5),
        ("250ms", 0.25),
        ("5m", 300),
        ("2 h", 7200),
        ("1D", 86400),
        ("-1", -1),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "count"), [("500", 500), ("64M", 64 << 20), ("1.5k", 1536), ("2GiB", 2 << 30), ("7b", 7), ("3 Kib", 3072)]
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "m", "5x", "1e3", "5 m m", "nan", "\u0661"])
def test_invalid_times_and_sizes(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)
    with pytest.raises(click.BadParameter):
        size(text)
