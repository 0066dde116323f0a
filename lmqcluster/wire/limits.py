"""Limits that every port enforces. Sizes are in bytes; times are in seconds unless the name says otherwise."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BATCH_BYTES_MAX",
    "FRAME_BYTES_MAX",
    "HANDSHAKE_BYTES_MAX",
    "HTTP_PROPERTY_BYTES_MAX",
    "IDEMPOTENCY_WINDOW_S",
    "MESSAGE_BYTES_MAX",
    "NAME_BYTES_MAX",
    "PATTERN_BYTES_MAX",
    "PULL_COUNT_MAX",
    "PUSH_COUNT_MAX",
    "REQUEST_BYTES_MAX",
]

MiB: Final = 1024 * 1024

NAME_BYTES_MAX: Final = 255
PATTERN_BYTES_MAX: Final = 4096
MESSAGE_BYTES_MAX: Final = 64 * MiB
"""Largest body of one message."""
REQUEST_BYTES_MAX: Final = 104 * MiB
"""Largest client request on any port: a batch of messages, such as 100 of 1 MiB, or one message of `MESSAGE_BYTES_MAX` with
its envelope, also in JSON, where Base64 makes a body a third longer."""
FRAME_BYTES_MAX: Final = 112 * MiB
"""Largest message between peers; larger than `REQUEST_BYTES_MAX`, so that every accepted request can be replicated."""
BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024
"""Largest batch of commands; a larger one could never be sent to a peer."""
HANDSHAKE_BYTES_MAX: Final = 4096
"""Largest frame that a peer may send before it has authenticated."""
HTTP_PROPERTY_BYTES_MAX: Final = 8 * MiB
PUSH_COUNT_MAX: Final = 10_000
"""Most messages in one batch push."""
PULL_COUNT_MAX: Final = 10_000
"""Most messages in one batch pull."""
IDEMPOTENCY_WINDOW_S: Final = 600
"""Time for which a key or a producer is stored, in seconds of log time; the contract promises 300."""
