"""Views of queues that take nothing: lists, statistics, messages."""
