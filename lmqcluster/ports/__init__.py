"""What a listening port takes: connections, descriptors and memory, for each client and for those who have not said who they are.

All ports of a node stand on this: HTTP, MessagePack-RPC and Raft.
"""

from .gate import Bounds, Gate
from .half_closed import HALF_CLOSED_S, has_taken_all, may_be_half_closed
from .listener import Listener
from .memory import VALUE_BYTES, Memory
from .place import Ending, Place
from .shares import Shares

__all__ = [
    "HALF_CLOSED_S",
    "VALUE_BYTES",
    "Bounds",
    "Ending",
    "Gate",
    "Listener",
    "Memory",
    "Place",
    "Shares",
    "has_taken_all",
    "may_be_half_closed",
]
