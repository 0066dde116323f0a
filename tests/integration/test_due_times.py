"""Due times of pushes through a node that has missed a part of the log."""

from __future__ import annotations

import time

from .cluster import Cluster, wait_for
from .raw_http import call
from .raw_rpc import Rpc

DOWN_S = 4.0
DUE_IN_S = 1000.0


def test_a_due_time_is_not_early_when_the_node_has_been_down(cluster: Cluster) -> None:
    """The node used the log time of its last run, so its messages were due too early by the time it was down."""
    late, *others = list(cluster)
    wait_for(lambda: any('"what": "set_time"' in node.log() for node in cluster), "the log time to be set")
    # Without its state it would refuse options because it would not know the machine version.
    assert call(late.http, "POST", "/v1/snapshots", b"{}", {"content-type": "application/json"}).status == 200
    late.kill()
    # Real time has to pass.
    time.sleep(DOWN_S)
    for node in others:
        node.pause()
    late.start(wait=False)
    wait_for(lambda: late.log().count('"event": "started"') == 2, "the node to listen again")
    due = time.time() + DUE_IN_S
    with Rpc(late.rpc) as rpc:
        pushing, looking = rpc.ask("push", "q", b"x", {"due": due}), rpc.ask("ping")
        errors = {}
        while looking not in errors:
            reply = rpc.read()
            errors[reply.msgid] = reply.error
        # The push is accepted, or was refused.
        for node in others:
            node.resume()
        error = errors[pushing] if pushing in errors else rpc.read().error
        if error is not None:
            assert error.startswith((b"no_leader", b"overloaded")), error
            late.wait_ready()
            rpc.call("push", "q", b"x", {"due": due})
    [shown] = others[0].get_json("/v1/queues/q/messages")["messages"]
    assert abs(time.time() + shown["due_in_s"] - due) < DOWN_S / 2
