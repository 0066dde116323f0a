"""Planted bugs: small changes of the sources, each with the checks that must fail with it.

`python -m tests.plants` applies each to a copy of the sources and runs its checks there.
"""
