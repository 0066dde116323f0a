"""The cluster of a drill and its processes."""
