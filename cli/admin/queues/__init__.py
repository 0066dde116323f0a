"""Commands on queues: their properties, links, definitions and contents."""
