"""The protocol of queued's clients: HTTP with JSON or MessagePack, messages named by id and poll tag."""

from .port import QueuedPort

__all__ = ["QueuedPort"]
