"""Views of queues that take no messages: lists, statistics, messages."""
