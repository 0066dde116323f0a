"""Tokens and keys, and the quotas of state for each owner."""
