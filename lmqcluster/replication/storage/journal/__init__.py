"""The Raft log of one node, in memory and on disk."""
