"""Front-end processes, which accept the connections of client ports and relay their bytes to the node's process."""
