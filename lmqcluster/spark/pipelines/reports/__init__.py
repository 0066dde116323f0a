"""Figures from event journals: reports and live windows."""
