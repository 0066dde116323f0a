"""Calls to the cluster: connections, failover, requests, replies, credentials."""
