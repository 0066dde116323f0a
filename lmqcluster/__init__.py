"""lmqcluster: a masterless, replicated message queue, LMQ's successor.

``AsyncClient`` and ``Client`` talk to a cluster; ``lmq start`` and ``lmq dev`` run one.
"""

from .client import AsyncClient, Client, Message, SyncMessage
from .wire.errors import LmqError, Outcome

__all__ = ["AsyncClient", "Client", "LmqError", "Message", "Outcome", "SyncMessage"]
