"""The data that a node keeps on its disk: the journal, snapshots and the pages of long queues."""
