"""Failover drills: faults on real processes, networks and disks, judged by a checker that shares no code with the core.

A drill starts a cluster, puts a load on it, injects faults, ends them, drains the queues, and gives a verdict. A
scenario, a TOML file, lists the faults. Start reading at `drill`; DESIGN.md explains the parts. Drills neither read nor
change the internals of a node: they see what a client and the operating system see.
"""
