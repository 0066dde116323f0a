"""lmqcluster: a masterless, replicated message queue, LMQ's successor.

``AsyncClient`` and ``Client`` talk to a cluster; ``lmq start`` and ``lmq dev`` run one.
"""

from typing import TYPE_CHECKING

from .lazy_names import lazy_names

if TYPE_CHECKING:
    from .client import AsyncClient, Client, Message, SyncMessage
    from .version import __version__
    from .wire.errors import LmqError, Outcome
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "AsyncClient": "client",
            "Client": "client",
            "LmqError": "wire.errors",
            "Message": "client",
            "Outcome": "wire.errors",
            "SyncMessage": "client",
            "__version__": "version",
        },
    )

__all__ = ["AsyncClient", "Client", "LmqError", "Message", "Outcome", "SyncMessage", "__version__"]
