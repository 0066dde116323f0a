"""Options of the metrics that a node sends to StatsD servers, in the format of LMQ and in that of queued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from ...wire.address import Address
from . import values
from .option import option

__all__ = ["StatsdOptions"]

TEXT_MAX: Final = 100
"""Maximum number of characters of a prefix, and of all tags together."""


@dataclass(frozen=True, kw_only=True)
class StatsdOptions:
    """Options of the StatsD metrics."""

    statsd: Address | None = field(
        default=None,
        metadata=option(
            values.address_or_off,
            "Address of a StatsD server that receives LMQ's counters and gauges over UDP, or off.",
            extremes="If no server listens, datagrams are lost silently.",
            metavar="ADDR",
            default="off",
        ),
    )
    statsd_prefix: str = field(
        default="lmq",
        metadata=option(
            values.text,
            "Prefix of the names of StatsD metrics; the queue's name follows.",
            extremes="At most 100 characters, without colons, bars, at signs and white space.",
            metavar="TEXT",
            default="lmq",
        ),
    )
    statsd_interval: int = field(
        default=20,
        metadata=option(
            values.count,
            "Seconds between the StatsD gauges of all queues; counters are sent every second. 0 for no gauges.",
            extremes="Short intervals with many queues fill the network.",
            metavar="SECONDS",
            default="20",
        ),
    )
    queued_statsd: Address | None = field(
        default=None,
        metadata=option(
            values.address_or_off,
            "Address of a StatsD server that receives queued's metrics, with the queue as a tag, or off. Set the "
            "same on all nodes.",
            extremes="The server must understand tags in the format of DogStatsD.",
            metavar="ADDR",
            default="off",
        ),
    )
    queued_statsd_prefix: str = field(
        default="queued",
        metadata=option(
            values.text,
            "Prefix of the names of these metrics.",
            extremes="As for statsd_prefix.",
            metavar="TEXT",
            default="queued",
        ),
    )
    queued_statsd_tags: tuple[str, ...] = field(
        default=(),
        metadata=option(
            values.tags,
            "Further tags of these metrics.",
            extremes="At most 100 characters in total, without bars, at signs, number signs and white space.",
            metavar="NAME:VALUE,...",
            default="none",
        ),
    )

    def validate_statsd(self, fail: Callable[[str, str], NoReturn]) -> None:
        """Call `fail` with the name of an invalid option and the reason."""
        for name, address in (("statsd", self.statsd), ("queued_statsd", self.queued_statsd)):
            if address is not None and not address.port:
                fail(name, f"{address} has no port that could be sent to")
        for name, prefix in (
            ("statsd_prefix", self.statsd_prefix),
            ("queued_statsd_prefix", self.queued_statsd_prefix),
        ):
            if len(prefix) > TEXT_MAX or not prefix.isprintable() or set(prefix) & set(":|@ "):
                fail(name, f"must have at most {TEXT_MAX} characters, and no colon, bar, at sign or space")
        tags = ",".join(self.queued_statsd_tags)
        if len(tags) > TEXT_MAX or not tags.isprintable() or set(tags) & set("|@# "):
            fail(
                "queued_statsd_tags",
                f"must have at most {TEXT_MAX} characters, and no bar, at sign, number sign or space",
            )
