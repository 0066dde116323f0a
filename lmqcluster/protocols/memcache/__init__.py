"""The memcache protocol with Kestrel's extensions."""

from .connection import MemcacheConnection

__all__ = ["MemcacheConnection"]
