"""Limits of what clients may ask for: those of AWS, or those of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ...wire.limits import PULL_COUNT_MAX, PUSH_COUNT_MAX, REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from ...node.config.config import NodeConfig

__all__ = ["BATCH_BYTES_MAX", "Limits", "limits_of"]

_MIB: Final = 1024 * 1024
BATCH_BYTES_MAX: Final = _MIB
_HOURS_12_S: Final = 43_200
_SECONDS_MAX: Final = 1_000_000_000
_REQUEST_BYTES_MAX: Final = 13 * _MIB // 2
"""Most bytes of a request: a body of 1 MiB has six times as many if each character is escaped, plus the rest."""


class Limits(NamedTuple):
    """The limits. Times are in seconds, sizes in bytes, and ranges have both ends.

    Attributes:
        request_bytes: most bytes of a request's body.
        batch_bytes: most bytes of the messages of a batch.
        entries: most entries of a batch.
        messages: most messages of a receive.
        message_bytes: range of the attribute ``MaximumMessageSize``.
        visibility_s: longest time for which a receive hides messages.
        visible_after_s: longest time between a receive and the time at which its messages are visible again; None for any.
        delay_s: longest delay.
        wait_s: longest wait of a receive.
        retention_s: range of the time for which messages are kept.
    """

    request_bytes: int
    batch_bytes: int
    entries: int
    messages: int
    message_bytes: tuple[int, int]
    visibility_s: int
    visible_after_s: int | None
    delay_s: int
    wait_s: int
    retention_s: tuple[int, int]


def limits_of(config: NodeConfig) -> Limits:
    """Return the limits of a node."""
    if config.sqs_limits == "relaxed":
        return Limits(
            request_bytes=REQUEST_BYTES_MAX,
            batch_bytes=REQUEST_BYTES_MAX,
            entries=PUSH_COUNT_MAX,
            messages=PULL_COUNT_MAX,
            message_bytes=(1, config.message_bytes_max),
            visibility_s=_SECONDS_MAX,
            visible_after_s=None,
            delay_s=_SECONDS_MAX,
            wait_s=3_600,
            retention_s=(1, _SECONDS_MAX),
        )
    return Limits(
        request_bytes=_REQUEST_BYTES_MAX,
        batch_bytes=BATCH_BYTES_MAX,
        entries=10,
        messages=10,
        message_bytes=(1_024, _MIB),
        visibility_s=_HOURS_12_S,
        visible_after_s=_HOURS_12_S,
        delay_s=900,
        wait_s=20,
        retention_s=(60, 1_209_600),
    )
