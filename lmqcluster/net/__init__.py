"""How a host is reached by its name: look-ups that block nobody else, and connections to the first address that answers.

Nodes, clients and programs all connect through this package: `loop` on an event loop, `blocking` without one.
"""
