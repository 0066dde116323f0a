"""Connections and who may open them."""
