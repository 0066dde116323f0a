"""Schedules: messages that the cluster pushes at times that a rule gives."""
