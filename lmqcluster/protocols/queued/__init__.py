"""The protocol of queued's clients: HTTP with JSON or MessagePack, messages named by id and poll tag."""

from .frontend import QueuedFrontEnd

__all__ = ["QueuedFrontEnd"]
