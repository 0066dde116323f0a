"""HTTP, MessagePack-RPC and Kestrel's protocols."""
