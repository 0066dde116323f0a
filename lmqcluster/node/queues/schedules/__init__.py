"""Schedules at the node: their rules, their due times, and the clock that they follow."""
