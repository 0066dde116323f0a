"""Kestrel's Thrift protocol: framed messages in the binary encoding."""

from .connection import ThriftConnection

__all__ = ["ThriftConnection"]
