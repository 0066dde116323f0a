"""What Kestrel's protocols have in common: queues as its clients know them, their connections and statistics."""
