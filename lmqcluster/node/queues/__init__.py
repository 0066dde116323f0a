"""The queue operations of one node: the service for protocols, waiting pulls, patterns, views."""
