"""Tokens and keys, and how much state each owner may have."""
