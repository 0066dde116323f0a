"""The queue operations of one node: the service for front ends, waiting pulls, patterns, views."""
