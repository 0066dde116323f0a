"""The replicated log: PySyncObj as the Raft core, with our own journal, transport and message handlers.

PySyncObj contributes elections, vote counting and the commit rule. Disk, wire, membership and snapshots are ours;
`raft.core` holds every override of the library's internals, named after the defect that it fixes. This package does
not depend on HTTP or RPC; of the queues it only knows that a `Machine` applies batches.
"""
