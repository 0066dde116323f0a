"""Identities of clients for fair scheduling."""

from __future__ import annotations

from .access import Access, Principal

__all__ = ["NODE", "client_of"]

NODE = b"node"
"""The node itself."""


def client_of(access: Access, principal: Principal, address: str) -> bytes:
    """Return the identity of a client on this node: the name of its token, or its address and port if it needs no token."""
    if principal is access.anonymous:
        return b"connection " + address.encode()
    return b"token " + principal.name.encode()
