"""Commands on tokens, certificates and saved contexts."""
