"""``lmq-admin`` pushes and shows attributes, selects messages by one, and keeps them from ``drain`` to ``replay``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lmqcluster import Client
from lmqcluster.client.options import PushOptions
from lmqcluster.wire.attributes import Attributes

from .cluster import Cluster
from .programs import Result, run

ATTRIBUTES: Attributes = {"tenant": "\xe9, =", "n": -(1 << 60), "ratio": 0.5, "raw": b"\xff"}


@pytest.fixture
def admin(shared_cluster: Cluster) -> Callable[..., Result]:
    """Runs lmq-admin against the shared cluster."""
    return lambda *arguments, **more: run("lmq-admin", "--node", shared_cluster[1].http, *arguments, **more)


def test_attributes_are_pushed_and_shown(admin, queue_name: str) -> None:
    options = ("--attribute", "tenant=a=b", "--attribute", f"n:={1 << 60}", "--attribute", "ratio:=-0.5")
    assert admin("message", "push", queue_name, "x", *options) == (0, "", "")
    assert admin("message", "push", queue_name, "y") == (0, "", "")
    shown = {"n": 1 << 60, "ratio": -0.5, "tenant": "a=b"}
    answer = json.loads(admin("message", "peek", queue_name, "--json").out)
    assert [one["attributes"] for one in answer["messages"]] == [shown, {}]
    tabled = admin("message", "peek", queue_name, "--columns", "attributes,content").out
    assert tabled == f"attributes\tcontent\nn={1 << 60}, ratio=-0.5, tenant=a=b\tx\n\ty\n"
    assert json.loads(admin("--json", "message", "pull", queue_name).out)["messages"][0]["attributes"] == shown


def test_an_attribute_selects_messages(admin, queue_name: str) -> None:
    for content, attribute in (("x", "n:=5"), ("y", "n:=6"), ("z", "n=5"), ("w", "other=5")):
        assert admin("message", "push", queue_name, content, "--attribute", attribute).code == 0
    for wanted in ("n=5", "n:=5"):
        found = admin("message", "peek", queue_name, "--attribute", wanted, "--columns", "content").out
        assert found == "content\nx\nz\n"


@pytest.mark.parametrize("attribute", ["tenant", "=a", ":=5", "n:=five", "n:=NaN", "n:=1e999", "n:=true", "n:=[]"])
def test_malformed_attributes_are_refused(admin, queue_name: str, attribute: str) -> None:
    refused = admin("message", "push", queue_name, "x", "--attribute", attribute)
    assert refused.code == 2
    assert "--attribute" in refused.one_line_error()


@pytest.mark.parametrize("to_other_queue", [False, True])
def test_replay_pushes_what_drain_wrote(
    admin, shared_cluster: Cluster, tmp_path: Path, queue_name: str, to_other_queue: bool
) -> None:
    file = tmp_path / "drained.jsonl"
    with Client(shared_cluster[0].rpc) as client:
        client.push(queue_name, {"a": [1, b"\xff", "text"]}, attributes=ATTRIBUTES, label="l", group="g", priority=-3)
        options: list[PushOptions | None] = [{"attributes": {"a": "1"}}, None, None]
        client.push_many(queue_name, [b"\x00", b"", "\xe9"], content_types=["image/png", b"", None], options=options)
        pulled = client.pull_many(queue_name, 10)
        before = [_shown(one) for one in pulled]
        assert len(before) == 4
        client.put_back_many(queue_name, [one.id for one in pulled])
    assert admin("drain", queue_name, "--output", str(file), "--wait", "0").out == f"queue\tmessages\n{queue_name}\t4\n"
    target = f"{queue_name}.other" if to_other_queue else queue_name
    more = ["--queue", "{queue}.other"] if to_other_queue else []
    assert admin("replay", str(file), "--drained", *more) == (0, f"queue\tmessages\n{target}\t4\n", "")
    with Client(shared_cluster[0].rpc) as client:
        assert [_shown(one) for one in client.pull_many(target, 10)] == before


def test_the_parts_of_a_compound_message_keep_their_attributes(admin, shared_cluster: Cluster, queue_name: str) -> None:
    with Client(shared_cluster[0].rpc) as client:
        client.update_props(queue_name, {"accum": 0.2})
        client.push(queue_name, "one", attributes=ATTRIBUTES)
        client.push(queue_name, b"two")
        drained = admin("drain", queue_name, "--wait", "5")
        assert drained.err == f"{queue_name}\t1\n"
        client.update_props(queue_name, {"accum": 0})
        replayed = admin("replay", "-", "--drained", stdin=drained.out)
        assert replayed == (0, f"queue\tmessages\n{queue_name}\t2\n", "")
        found = [(one.content, one.attributes) for one in client.pull_many(queue_name, 10)]
        assert found == [(b"one", ATTRIBUTES), (b"two", {})]


def test_lines_that_drain_did_not_write_are_refused(admin, queue_name: str) -> None:
    good = json.dumps({"queue": queue_name, "type": "normal", "content": "x"})
    for bad in (
        "[]",
        "{}",
        "7",
        '{"queue":"q","type":"normal","content":7}',
        "\xff",
        good[:-1] + ',"attributes":{"":1}}',
    ):
        refused = admin("replay", "-", "--drained", stdin=f"{good}\n{bad}\n")
        assert refused.code == 65, bad
        assert "line 2: " in refused.one_line_error()


def _shown(message) -> tuple[object, ...]:
    traits = (message.label, message.group, message.priority)
    return message.content, message.content_type, message.attributes, *traits
