"""The replicated state machine: queues, messages, leases, properties, deduplication, snapshots.

It takes (leader's timestamp, batch of commands) and returns results. It does no I/O, reads no clock, draws no random
numbers and imports only the standard library, so replicas that apply the same log stay equal byte for byte. Times are
integer microseconds of log time. Waiting, encoding and authorisation are left to the node.
"""

from .applied import Applied
from .log.commands import Op
from .log.results import Fault, IncompatibleVersionError, PushFlag, Refusal
from .machine import Machine
from .messages.message import Message
from .owners.api_keys import ApiKeys
from .owners.tokens import EVERY_QUEUE, Role, Token, TokenResult, Tokens
from .queue.queue import Queue
from .snapshot.records import Restoration
from .snapshot.view import SnapshotView
from .state.state import State

__all__ = [
    "EVERY_QUEUE",
    "ApiKeys",
    "Applied",
    "Fault",
    "IncompatibleVersionError",
    "Machine",
    "Message",
    "Op",
    "PushFlag",
    "Queue",
    "Refusal",
    "Restoration",
    "Role",
    "SnapshotView",
    "State",
    "Token",
    "TokenResult",
    "Tokens",
]
