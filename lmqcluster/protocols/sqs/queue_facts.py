"""Facts that the protocol knows of a queue: its kind, its settings, and what only clients of SQS give it.

The latter are annotations of the queue. A queue that other clients made has none, and behaves as a standard queue with the
properties that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...core.queue.annotations import FIFO, KIND

if TYPE_CHECKING:
    from ...core import Queue

__all__ = [
    "ALLOW_POLICY", "CONTENT_BASED", "FIFO", "KIND", "OTHER", "PREFIX", "STANDARD", "TAG_PREFIX", "THROUGHPUT", "WAIT",
    "QueueFacts",
]  # fmt: skip

PREFIX: Final = "sqs."
TAG_PREFIX: Final = "sqs.tag."
STANDARD, OTHER = "standard", "other"
WAIT: Final = "ReceiveMessageWaitTimeSeconds"
CONTENT_BASED: Final = "ContentBasedDeduplication"
THROUGHPUT: Final = "FifoThroughputLimit"
ALLOW_POLICY: Final = "RedriveAllowPolicy"


class QueueFacts:
    """A view of a queue of the local replica.

    Attributes:
        queue: the queue.
        name: its name.
        annotations: what clients keep with it.
        kind: how it was made: `STANDARD`, `FIFO`, or `OTHER` if not by a client of SQS.
        is_fifo: whether it is a FIFO queue.
    """

    __slots__ = ("annotations", "is_fifo", "kind", "name", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.name = queue.name
        self.annotations: Mapping[str, str] = queue.annotations
        self.kind: str = self.annotations.get(KIND, OTHER)
        self.is_fifo = self.kind == FIFO

    def text(self, attribute: str) -> str | None:
        """Return an attribute that is kept as an annotation, None if it is not set."""
        return self.annotations.get(PREFIX + attribute)

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags."""
        size = len(TAG_PREFIX)
        return {name[size:]: value for name, value in self.annotations.items() if name.startswith(TAG_PREFIX)}

    @property
    def timeout_s(self) -> int:
        """Return for how many seconds a receive hides a message by default."""
        return max(0, self.queue.settings.timeout_us) // 1_000_000

    @property
    def delay_s(self) -> int:
        """Return the default delay in seconds."""
        options = self.queue.settings.options
        return 0 if options is None else options.delay_us // 1_000_000

    @property
    def retention_s(self) -> int | None:
        """Return for how many seconds messages are kept; None if they are kept until they are deleted."""
        options = self.queue.settings.options
        return None if options is None or options.max_age_us is None else options.max_age_us // 1_000_000

    def message_bytes(self, bytes_max: int) -> int:
        """Return the most bytes of a message, at most those that the node takes."""
        options = self.queue.settings.options
        own = None if options is None else options.max_item_bytes
        return bytes_max if own is None else min(own, bytes_max)

    @property
    def wait_s(self) -> int:
        """Return for how many seconds a receive waits by default."""
        return int(self.text(WAIT) or 0)

    @property
    def is_content_based(self) -> bool:
        """Return whether the hash of a body is a deduplication id."""
        return self.text(CONTENT_BASED) == "true"

    @property
    def is_deduplicated_by_group(self) -> bool:
        """Return whether deduplication ids count in a group."""
        options = self.queue.settings.options
        return options is not None and options.keys_by_group

    @property
    def dead_letters(self) -> bytes:
        """Return the queue that gets its dead letters, empty for none."""
        options = self.queue.settings.options
        return b"" if options is None else options.dead_letters

    @property
    def deliveries_max(self) -> int | None:
        """Return after how many deliveries a message is a dead letter; None for any number."""
        options = self.queue.settings.options
        return None if options is None else options.deliveries_max
