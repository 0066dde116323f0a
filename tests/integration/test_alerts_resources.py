"""Alerts on the resources of a node and on its faults: each fires on a real node, and ends after its runbook."""

from __future__ import annotations

import random
import resource
import shutil
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lmqcluster_chaos.injection.control import Control
from lmqcluster_chaos.injection.tools import interposer

from lmqcluster import Client

from .alert_timeline import Timeline
from .cluster import NodeProcess, wait_for
from .programs import run
from .raw_http import call
from .runbook import Operator
from .test_access_tls import SECRET, init
from .test_metrics import value

TIMEOUT_S: Final = 120.0
LIMIT: Final = "64MiB"
BODY_BYTES: Final = 5_000_000
BODIES: Final = 6
"""In each of two queues: about 0.9 of the limit of memory and of the limit of disk."""
PULLED: Final = 10_000
CERTIFICATE: Final = "LmqCertificateExpires"
UNLOADED: Final = "LmqCredentialsNotLoaded"
FAULTS: Final = "LmqApplyFaults"
PLANT: Final = """
from lmqcluster.core.handlers.push import PushCommands
from lmqcluster_cli.lmq.program import main
push = PushCommands.push
def faulty(self, command):
    if command.queue == b"faulty":
        raise RuntimeError("planted")
    return push(self, command)
PushCommands.push = faulty
main()
"""
"""A node whose state machine cannot carry out a push to one queue."""


class FaultyNode(NodeProcess):
    """A node with a planted bug."""

    def command(self) -> list[str]:
        _python, _module, _lmq, *rest = super().command()
        return [sys.executable, "-c", PLANT, *rest]


def _fill(client: Client, *queues: str) -> None:
    """Store bodies that cannot be compressed."""
    source = random.Random(1)
    for queue in queues:
        for _ in range(BODIES):
            client.push(queue, source.randbytes(BODY_BYTES))


def _drop_events(client: Client, node: NodeProcess, queue: str) -> None:
    """Deliver messages again and again, until more events wait for the journal than it holds."""
    client.push_many(queue, [b"content"] * PULLED)

    def dropped() -> bool:
        messages = client.pull_many(queue, PULLED, timeout=TIMEOUT_S)
        client.put_back_many(queue, [message.id for message in messages])
        return value(node.http, "lmq_events_dropped_total") > 0

    wait_for(dropped, "events to be dropped")


def test_alerts_on_resources_fire_and_end_after_their_runbooks(tmp_path: Path) -> None:
    control = Control(tmp_path / "control")
    disk_bytes = shutil.disk_usage(tmp_path).total
    control.show_free(disk_bytes // 2)
    events, away = tmp_path / "events", tmp_path / "away"
    arguments = ("--memory-bytes-max", LIMIT, "--disk-bytes-max", LIMIT, "--event-journal", str(events))
    preload = {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_CONTROL": str(control.path)}
    node = NodeProcess(tmp_path, arguments=arguments, environment=preload)
    timeline, operator = Timeline([node], tmp_path), Operator([node], tmp_path)
    alerts = (
        *("LmqMemoryNearLimit", "LmqDiskNearLimit", "LmqDiskNearlyFull"),
        *("LmqSnapshotsFail", "LmqFilesNearLimit", "LmqEventsDropped"),
    )
    with node, Client(node.rpc, timeout_s=TIMEOUT_S) as client:
        snapshots, kept = node.data_dir / "snapshots", node.data_dir / "kept"
        timeline.scrape()
        assert not timeline.firing() & {*alerts}

        events.rename(away)
        _drop_events(client, node, "events")
        _fill(client, operator.name("LmqMemoryNearLimit"), operator.name("LmqDiskNearLimit"))
        assert run("lmq-admin", "snapshot", environment={"LMQ_NODE": node.http}).code == 0
        snapshots.rename(kept)
        snapshots.touch()
        # A node repeats no snapshot that it has.
        client.push("events", b"content")
        assert run("lmq-admin", "snapshot", environment={"LMQ_NODE": node.http}).code == 69
        assert node.pid is not None
        _soft, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        few = round(value(node.http, "process_open_fds") * 1.1)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (few, hard))
        control.show_free(disk_bytes // 20)
        # The node measures it once in some seconds.
        wait_for(lambda: value(node.http, "lmq_disk_used_bytes") > 0, "the size of the snapshot")
        timeline.scrape()
        assert timeline.firing() >= {*alerts}

        # What the pages leave to the operator.
        operator.act("LmqSnapshotsFail")
        snapshots.unlink()
        kept.rename(snapshots)
        operator.act("LmqEventsDropped")
        away.rename(events)
        control.show_free(disk_bytes // 2)
        for alert in alerts:
            if alert not in {"LmqSnapshotsFail", "LmqEventsDropped"}:
                operator.act(alert, replaced={"200000:200000": f"{hard}:{hard}"})
        for alert in alerts:
            operator.confirm(alert)
        wait_for(lambda: "event journal writable again" in node.log(), "the event journal")
        timeline.scrape()
        timeline.scrape()
        assert not timeline.firing() & {*alerts}


@contextmanager
def _tls_node(tmp_path: Path, *init_options: str) -> Iterator[tuple[NodeProcess, Timeline, Operator]]:
    """Run a node whose certificate and key are files in `tls` of the operator's `etc`."""
    operator = Operator([], tmp_path, {"LMQ_TOKEN": SECRET})
    certificates, used = operator.folder / "tls", operator.folder / "etc" / "tls"
    used.mkdir(parents=True)
    init("n3=10.0.0.3", "--dir", str(certificates), *init_options)
    shutil.copy(certificates / "n3.crt", used / "node.crt")
    shutil.copy(certificates / "n3.key", used / "node.key")
    token = tmp_path / "token"
    token.write_text(SECRET)
    flags = {"tls-cert": used / "node.crt", "tls-key": used / "node.key", "admin-token-file": token}
    node = NodeProcess(tmp_path, arguments=[f"--{name}={path}" for name, path in flags.items()]).start(wait=False)
    operator.take(node)
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    timeline = Timeline([node], tmp_path, context=context, headers={"Authorization": f"Bearer {SECRET}"})
    with node:
        wait_for(lambda: '"ready"' in node.log(), "the node")
        timeline.scrape()
        yield node, timeline, operator


def test_a_certificate_that_expires_is_replaced(tmp_path: Path) -> None:
    with _tls_node(tmp_path, "--days", "7") as (node, timeline, operator):
        assert CERTIFICATE in timeline.firing()
        operator.act(CERTIFICATE)
        wait_for(lambda: "certificate and admin token reloaded" in node.log(), "the reload")
        operator.confirm(CERTIFICATE)
        timeline.scrape()
        assert CERTIFICATE not in timeline.firing()


def test_a_certificate_that_cannot_be_loaded_is_installed_again(tmp_path: Path) -> None:
    with _tls_node(tmp_path) as (node, timeline, operator):
        assert UNLOADED not in timeline.firing()
        certificate = operator.folder / "etc" / "tls" / "node.crt"
        # An interrupted copy. The node notices it without a signal.
        certificate.write_text(certificate.read_text()[:100])
        wait_for(lambda: "cannot reload" in node.log(), "the failed reload")
        timeline.scrape(10)
        assert UNLOADED in timeline.firing()
        operator.act(UNLOADED)
        operator.confirm(UNLOADED)
        timeline.scrape()
        assert UNLOADED not in timeline.firing()


def test_a_bug_of_the_state_machine_is_reported(tmp_path: Path) -> None:
    with FaultyNode(tmp_path) as node:
        timeline, operator = Timeline([node], tmp_path), Operator([node], tmp_path)
        timeline.scrape()
        assert FAULTS not in timeline.firing()
        assert call(node.http, "POST", "/messages/faulty", b"content").status == 400
        timeline.scrape()
        assert FAULTS in timeline.firing()
        operator.act(FAULTS)
        timeline.scrape()
        assert FAULTS not in timeline.firing()
