"""What a node keeps on its disk: the journal, snapshots and the node's identity."""
