"""Common parts of Kestrel's protocols: queues as its clients see them, connections and statistics."""
