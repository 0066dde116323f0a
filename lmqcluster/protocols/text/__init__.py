"""Kestrel's text protocol, for people and scripts."""

from .connection import TextConnection

__all__ = ["TextConnection"]
