"""The replicated log: PySyncObj as the Raft core, with our own journal, transport and message handlers.

PySyncObj contributes elections, vote counting and the commit rule. What touches disk, wire, membership and
snapshots is ours; `raft.core` holds every override of the library's internals, named after the defect that it mends. This
package knows nothing of HTTP or RPC, and of the queues only that a `Machine` applies batches.
"""
