"""Connections between members: handshake, encryption, frames, messages."""
