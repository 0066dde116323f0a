"""Annotations of a queue: texts that clients keep with it. The state machine reads only the kind of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..log.results import RefusedError

__all__ = [
    "ANNOTATIONS_MAX",
    "ANNOTATION_BYTES_MAX",
    "FIFO",
    "KIND",
    "NO_ANNOTATIONS",
    "Annotations",
    "annotated",
    "checked_annotations",
]

Annotations = Mapping[str, str]
NO_ANNOTATIONS: Annotations = MappingProxyType({})
"""Those of most queues."""

KIND, FIFO = "sqs.kind", "fifo"
"""The annotation with the kind of a queue made over SQS, and its value for a FIFO queue. All other queues are of one kind."""
ANNOTATIONS_MAX = 100
"""Most annotations of a queue."""
ANNOTATION_BYTES_MAX = 16 * 1024
"""Most bytes of their names and texts together."""
_NAME_BYTES_MAX = 255


def checked_annotations(pairs: Any) -> dict[str, str | None]:
    """Convert a command's annotations to the stored form; None stands for removal.

    Raises:
        ValueError: they are malformed.
    """
    result: dict[str, str | None] = {}
    for name, value in pairs:
        if type(name) is not bytes or not 0 < len(name) <= _NAME_BYTES_MAX:
            raise ValueError(f"the name of an annotation must have 1 to {_NAME_BYTES_MAX} bytes")
        if value is not None and type(value) is not bytes:
            raise ValueError("an annotation must be bytes or None")
        result[name.decode()] = None if value is None else value.decode()
    return result


def annotated(before: Annotations, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the annotations of a queue after some changes.

    Raises:
        RefusedError: ``too_large``.
    """
    after = {name: value for name, value in {**before, **changes}.items() if value is not None}
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in after.items())
    if len(after) > ANNOTATIONS_MAX or size_bytes > ANNOTATION_BYTES_MAX:
        raise RefusedError(
            "too_large",
            f"the queue would have {len(after)} annotations of {size_bytes} bytes; "
            f"there may be {ANNOTATIONS_MAX} of {ANNOTATION_BYTES_MAX} bytes, names included",
        )
    return after
