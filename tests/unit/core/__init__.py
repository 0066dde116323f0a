"""The state machine."""
