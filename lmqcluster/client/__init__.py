"""The Python client: `AsyncClient` and its blocking twin `Client`, over MessagePack-RPC.

``requests`` and ``replies`` translate; ``calls`` knows for every kind of call whether it may be repeated; ``connection`` moves
frames; ``session`` keeps calls alive from one connection to the next; the clients on top are a thin surface. The package imports
nothing of the server, only what both share: ``lmqcluster.wire``.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .aio.client import AsyncClient
    from .aio.job_calls import Mark
    from .aio.messages import Messages
    from .aio.session_calls import ClientSession
    from .aio.transactions import SyncTransaction, Transaction
    from .batches import Backlog, BatchColumns, BatchDetails, BatchLease, BatchMessage, ClosedQueue, Part
    from .blocking.client import Client, SyncMessage, SyncMessages
    from .blocking.session_calls import SyncSession
    from .client_options import ClientOptions
    from .message import Delivery, Message, Origin
    from .options import PushOptions
    from .transport.backoff import Backoff
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "AsyncClient": "async_client",
            "Backlog": "batches",
            "Backoff": "backoff",
            "BatchColumns": "batches",
            "ClosedQueue": "batches",
            "BatchDetails": "batches",
            "BatchLease": "batches",
            "BatchMessage": "batches",
            "Client": "sync_client",
            "ClientOptions": "client_options",
            "Delivery": "message",
            "SyncSession": "sync_session_calls",
            "ClientSession": "session_calls",
            "Mark": "job_calls",
            "Message": "message",
            "Messages": "messages",
            "Origin": "message",
            "Part": "batches",
            "PushOptions": "options",
            "SyncMessage": "sync_client",
            "SyncMessages": "sync_client",
            "SyncTransaction": "transactions",
            "Transaction": "transactions",
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
