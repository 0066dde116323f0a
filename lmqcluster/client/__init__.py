"""The Python client: `AsyncClient` and its blocking twin `Client`, over MessagePack-RPC.

``transport`` sends calls, knows which are safe to retry, and retries them elsewhere if a node fails. ``aio`` and ``blocking``
are thin layers on top of it. ``recipes`` are queues that call the application's code. The package imports no server code.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .aio.client import AsyncClient
    from .aio.messages import Messages
    from .aio.sessions import ClientSession
    from .aio.transactions import SyncTransaction, Transaction
    from .batches import Backlog, BatchColumns, BatchDetails, BatchLease, BatchMessage, ClosedQueue, Part
    from .blocking.client import Client, SyncMessage, SyncMessages, SyncSession
    from .client_options import ClientOptions
    from .mark import Mark
    from .message import Delivery, Message, Origin
    from .options import PushOptions
    from .transport.backoff import Backoff
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "AsyncClient": "aio.client",
            "Backlog": "batches",
            "Backoff": "transport.backoff",
            "BatchColumns": "batches",
            "ClosedQueue": "batches",
            "BatchDetails": "batches",
            "BatchLease": "batches",
            "BatchMessage": "batches",
            "Client": "blocking.client",
            "ClientOptions": "client_options",
            "Delivery": "message",
            "SyncSession": "blocking.client",
            "ClientSession": "aio.sessions",
            "Mark": "mark",
            "Message": "message",
            "Messages": "aio.messages",
            "Origin": "message",
            "Part": "batches",
            "PushOptions": "options",
            "SyncMessage": "blocking.client",
            "SyncMessages": "blocking.client",
            "SyncTransaction": "aio.transactions",
            "Transaction": "aio.transactions",
        },
    )

__all__ = [
    "AsyncClient",
    "Backlog",
    "Backoff",
    "BatchColumns",
    "BatchDetails",
    "BatchLease",
    "BatchMessage",
    "Client",
    "ClientOptions",
    "ClientSession",
    "ClosedQueue",
    "Delivery",
    "Mark",
    "Message",
    "Messages",
    "Origin",
    "Part",
    "PushOptions",
    "SyncMessage",
    "SyncMessages",
    "SyncSession",
    "SyncTransaction",
    "Transaction",
]
