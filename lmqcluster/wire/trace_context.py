"""W3C Trace Context: the values ``traceparent`` and ``tracestate``, which name the trace that a message belongs to.

Values of any client arrive here, so both are bounded and everything that is not in the standard's grammar counts as absent:
a trace never makes a request fail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .attributes import TRACE_ATTRIBUTES, pack_attributes, unpack_attributes
from .errors import LmqError

__all__ = ["TraceParent", "parse_traceparent", "trace_attributes", "with_trace"]

STATE_CHARACTERS_MAX: Final = 512
"""Longest ``tracestate``, the least that the standard demands."""
STATE_MEMBERS_MAX: Final = 32
_PARENT_CHARACTERS_MAX: Final = 256
_FIRST_VERSION: Final = "00"
# Later versions may append fields. The version ff is invalid, and so are ids of zeros only.
_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?", re.ASCII
)
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]", re.ASCII)


class TraceParent(NamedTuple):
    """A position in a trace.

    Attributes:
        trace_id: number of the trace, 128 bits.
        span_id: number of the span that sent the message or the request, 64 bits.
        is_sampled: whether the sender records the trace.
    """

    trace_id: int
    span_id: int
    is_sampled: bool


def parse_traceparent(value: Any) -> TraceParent | None:
    """Return the parts of a ``traceparent``; None if it is malformed."""
    if not isinstance(value, str) or len(value) > _PARENT_CHARACTERS_MAX:
        return None
    found = _PARENT.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _FIRST_VERSION and more is not None:
        return None
    return TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & 1))


def _is_state(value: str) -> bool:
    """Return whether a ``tracestate`` is in the grammar and within its bounds."""
    if not 0 < len(value) <= STATE_CHARACTERS_MAX:
        return False
    members = [member for one in value.split(",") if (member := one.strip(" \t"))]
    return 0 < len(members) <= STATE_MEMBERS_MAX and all(map(_MEMBER.fullmatch, members))


def trace_attributes(parents: Sequence[str], states: Sequence[str]) -> dict[str, str]:
    """Return the attributes for the headers ``traceparent`` and ``tracestate`` of a request, empty without a valid trace.

    Args:
        parents: all values of the header ``traceparent``; more than one are malformed.
        states: all values of ``tracestate``, which belong together.
    """
    if len(parents) != 1 or parse_traceparent(parents[0]) is None:
        return {}
    state = ",".join(states)
    parent_name, state_name = TRACE_ATTRIBUTES
    trace = {parent_name: parents[0]}
    return {**trace, state_name: state} if _is_state(state) else trace


def with_trace(attributes: bytes, trace: dict[str, str], bytes_max: int) -> bytes:
    """Return packed attributes with a trace, unless they have one already, or no room for it."""
    if not trace:
        return attributes
    own = unpack_attributes(attributes)
    if not own.keys().isdisjoint(TRACE_ATTRIBUTES):
        return attributes
    try:
        return pack_attributes({**own, **trace}, bytes_max)
    except LmqError:
        return attributes
