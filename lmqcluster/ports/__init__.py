"""Resource limits of listening ports: connections, descriptors and memory, for each client and for unauthenticated
connections.

All ports of a node use this package: HTTP, MessagePack-RPC, Kestrel, queued and Raft.
"""

from .connection_limiter import Bounds, ConnectionLimiter, ConnectionSlot
from .descriptor_shares import DescriptorShares
from .ending import Ending
from .front_ends.relayed_transport import RelayedTransport
from .front_ends.repeats import Answer, RepeatGroup
from .half_closed import HALF_CLOSED_S, is_gone, may_be_half_closed, wait_for_acknowledgement, wait_for_reset
from .keep_alive import keep_alive
from .listener import Listener
from .memory import VALUE_BYTES, Memory

__all__ = [
    "HALF_CLOSED_S",
    "VALUE_BYTES",
    "Answer",
    "Bounds",
    "ConnectionLimiter",
    "ConnectionSlot",
    "DescriptorShares",
    "Ending",
    "Listener",
    "Memory",
    "RelayedTransport",
    "RepeatGroup",
    "is_gone",
    "keep_alive",
    "may_be_half_closed",
    "wait_for_acknowledgement",
    "wait_for_reset",
]
