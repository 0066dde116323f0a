"""The drill ground: faults on real processes, network and disks, judged by a checker that shares no code with the core.

A drill starts a cluster, puts a load on it, breaks things while it runs, mends everything, drains the queues, and gives a
verdict. What it breaks is written in a scenario, a TOML file that a person reads. Start reading at `drill`; DESIGN.md tells how
the parts hang together. Drills read and change nothing inside a node: they see what a client and an operating system see.
"""
