"""Changes of a cluster's members over HTTP, and why a cluster has no quorum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lmqcluster.wire.errors import LmqError, Outcome

from ...shared.connection.api import Api
from ...shared.errors import CliError, ExitCode

__all__ = ["MEMBERSHIP_TIMEOUT_S", "change_members", "why_no_quorum"]

MEMBERSHIP_TIMEOUT_S: Final = 900.0


def change_members(api: Api, verb: str, body: Mapping[str, Any]) -> Any:
    """Ask a node to ``join`` or ``leave`` a cluster, or to ``remove`` a member; return the cluster as it sees it then.

    Raises:
        CliError: the outcome is unknown; or the errors of `Api.post`.
    """
    try:
        return api.post(f"/v1/cluster/{verb}", body, timeout_s=MEMBERSHIP_TIMEOUT_S)
    except LmqError as exc:
        if exc.outcome is not Outcome.UNKNOWN:
            raise
        text = exc.message
    except CliError as exc:
        if exc.exit_code is not ExitCode.UNKNOWN:
            raise
        text = str(exc)
    advice = f"the outcome of {verb} is unknown: lmq-admin status shows the members; repeating the command is safe"
    raise CliError(f"{text}; {advice}", ExitCode.UNKNOWN)


def why_no_quorum(cluster: Mapping[str, Any]) -> str:
    """Return the reason why a node sees no quorum, as it follows the node's address."""
    nodes, quorum = cluster["nodes"], cluster["quorum"]
    if cluster["problem"] is not None:
        return f"reports: {cluster['problem']}"
    present = sum(1 for node in nodes if node["state"] != "unreachable")
    if present < quorum:
        return (
            f"has no quorum: it reaches {present} of {len(nodes)} nodes and needs {quorum}; start or reconnect others"
        )
    return f"reaches {present} of {len(nodes)} nodes but has no leader; an election takes a second or two"
