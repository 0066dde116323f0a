"""Whose share of the node a request uses."""

from __future__ import annotations

from .access import Access, Principal

__all__ = ["NODE", "client_of"]

NODE = b"node"
"""The node itself."""


def client_of(access: Access, principal: Principal, address: str) -> bytes:
    """The name of a client among all that a node serves: its token's; if it needs none, its address and port."""
    if principal is access.anonymous:
        return b"connection " + address.encode()
    return b"token " + principal.name.encode()
