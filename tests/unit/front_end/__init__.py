"""Connections and their limits."""
