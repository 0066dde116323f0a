"""Connections to hosts by name: look-ups that block no other work, and connections to the first address that answers.

Nodes, clients and programs connect through this package: `loop` on an event loop, `blocking` without one.
"""
