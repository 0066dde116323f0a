"""LMQ's MessagePack-RPC interface, with the batch methods of lmqcluster.

Source: MessagePack-RPC specification, https://github.com/msgpack-rpc/msgpack-rpc/blob/master/spec.md. Replies use only
the types of MessagePack's old specification, which LMQ's clients depend on.
"""

from .port import RpcPort

__all__ = ["RpcPort"]
