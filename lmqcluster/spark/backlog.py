"""How much there is to read now."""

from __future__ import annotations

from lmqcluster import Client

from .connecting import selection_errors
from .options import Selection

__all__ = ["ready_messages"]


def ready_messages(client: Client, selection: Selection, *, if_unknown: int) -> int:
    """How many messages can be reserved, as of the cluster's time.

    Args:
        client: a connection.
        selection: the queues.
        if_unknown: what to return where there are none but those whose leases have ended, which the cluster does not count.

    Raises:
        OptionError: the cluster refuses the queue's name or the pattern.
        LmqError: the cluster did not answer.
    """
    with selection_errors(selection):
        found = client.backlog(**selection.arguments())
    return found.messages or (0 if found.oldest_due_us is None else if_unknown)
