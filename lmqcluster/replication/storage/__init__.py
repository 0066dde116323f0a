"""The data that a node keeps on its disk: the journal, snapshots, pages and the node's identity."""
