"""``lmq-admin queue | message | defaults``: changes of queues, messages and default properties."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lmqcluster import Client

from .cluster import NodeProcess
from .programs import Result, run_here, run_in_terminal


@pytest.fixture
def admin(node: NodeProcess):
    """Runs lmq-admin against the shared node, in this process."""
    return lambda *arguments, **more: run_here("--node", node.http, *arguments, **more)


def fill(admin, queue: str, contents: str) -> None:
    for content in contents:
        assert admin("message", "push", queue, content) == (0, "", "")


def counts(admin, queue: str) -> tuple[int, int]:
    """Return the numbers of ready and leased messages."""
    shown = json.loads(admin("queue", "show", queue, "--json").out)
    return shown["ready"], shown["leased"]


def rows_of(result: Result) -> list[list[str]]:
    assert result.code == 0, result
    return [line.split("\t") for line in result.out.splitlines()[1:]]


# --- whole queues ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["queue", "purge", "{q}"], "remove 2 waiting messages from queue {q} (1 leased one stays)"),
        (["queue", "move", "{q}", "{q}-to"], "move 2 messages from queue {q} to queue {q}-to"),
        (["queue", "move", "{q}", "{q}-to", "--max", "1"], "move 1 message from queue {q} to queue {q}-to"),
        (["queue", "rm", "{q}"], "delete queue {q} with 3 messages"),
        (["queue", "clear", "{q}"], "remove the own properties of queue {q} (retry 1)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_destructive_commands_name_what_they_affect(admin, queue_name: str, command: list[str], what: str) -> None:
    admin("queue", "set", queue_name, "--create", "--retry", "1")
    fill(admin, queue_name, "abc")
    admin("message", "pull", queue_name, "--no-ack")
    command, what = [word.format(q=queue_name) for word in command], what.format(q=queue_name)
    assert admin(*command, "--dry-run") == (0, f"would {what}\n", "")
    refused = admin(*command)
    assert (
        refused.code,
        f"this would {what}, and there is no terminal to ask on: pass --yes" in refused.one_line_error(),
    ) == (
        2,
        True,
    )
    assert counts(admin, queue_name) == (2, 1)


def test_purge(admin, queue_name: str) -> None:
    fill(admin, queue_name, "abc")
    admin("message", "pull", queue_name, "--no-ack")
    assert json.loads(admin("queue", "purge", queue_name, "--yes", "--json").out) == {"purged": 2}
    assert counts(admin, queue_name) == (0, 1)
    assert admin("queue", "purge", "no-such-queue", "--yes").code == 66


def test_a_purge_keeps_the_newest(admin, node: NodeProcess, queue_name: str) -> None:
    fill(admin, queue_name, "abcdef")
    admin("message", "pull", queue_name, "--no-ack")
    purge = ("queue", "purge", queue_name, "--keep", "2")
    assert admin(*purge, "--dry-run").out.startswith(f"would remove 3 waiting messages from queue {queue_name}")
    assert json.loads(admin(*purge, "--yes", "--json").out) == {"purged": 3}
    left = node.get_json(f"/v1/queues/{queue_name}/messages")["messages"]
    assert [(one["state"], one["content"]) for one in left] == [("leased", "a"), ("ready", "e"), ("ready", "f")]
    assert json.loads(admin(*purge, "--yes", "--json").out) == {"purged": 0}
    assert counts(admin, queue_name) == (2, 1)
    assert admin("queue", "purge", "--pattern", queue_name, "--keep", "1", "--yes").code == 2


def test_a_purge_can_be_declined(admin, node: NodeProcess, queue_name: str) -> None:
    fill(admin, queue_name, "ab")
    purge = ["lmq-admin", "--node", node.http, "queue", "purge", queue_name]
    code, seen = run_in_terminal(*purge, typed=b"n\n")
    assert (code, f"Remove 2 waiting messages from queue {queue_name}" in seen) == (130, True)
    code, seen = run_in_terminal(*purge, typed=b"y\n")
    assert (code, f"2 messages were removed from queue {queue_name}." in seen) == (0, True)


def test_move(admin, queue_name: str) -> None:
    other = f"{queue_name}-other"
    fill(admin, queue_name, "abc")
    assert json.loads(admin("queue", "move", queue_name, other, "--max", "2", "--yes", "--json").out) == {"moved": 2}
    assert admin("queue", "move", queue_name, other, "--yes") == (0, "", "")
    assert admin("message", "pull", other, "--max", "5").out == "a\nb\nc\n"


def test_suspend_and_resume(admin, queue_name: str) -> None:
    fill(admin, queue_name, "a")
    assert admin("queue", "suspend", queue_name) == (0, "", "")
    assert rows_of(admin("queue", "ls", "--name", queue_name, "--columns", "queue,state")) == [
        [queue_name, "suspended"]
    ]
    assert admin("message", "pull", queue_name).code == 66
    assert json.loads(admin("queue", "resume", queue_name, "--json").out) == {"suspended": False}
    assert admin("message", "pull", queue_name).out == "a\n"


def test_properties_and_where_they_are_set(admin, queue_name: str) -> None:
    hooks = {"pre_http_push": [["lmq_hook_preserve_header", ["x-kind"]]]}
    assert admin("queue", "set", queue_name, "--create", "--retry", "1", "--hooks", json.dumps(hooks)) == (0, "", "")
    shown = {row[0]: row[1:] for row in rows_of(admin("queue", "show", queue_name))}
    assert (shown["retry"], shown["timeout"]) == (["1", "own"], ["30", "default"])
    assert json.loads(shown["hooks"][0]) == hooks
    dry = admin("queue", "set", queue_name, "--create", "--retry", "1", "--timeout", "5", "--dry-run")
    assert dry.out == "would change timeout from 30 to 5\n"
    assert admin("queue", "clear", queue_name, "--yes").code == 0
    assert ["retry", "2", "default"] in rows_of(admin("queue", "show", queue_name))
    wrong = admin("queue", "set", queue_name, "--hooks", "{")
    assert (wrong.code, "is not JSON" in wrong.one_line_error()) == (2, True)


# --- messages --------------------------------------------------------------------------------------------------------


def test_messages_are_settled_by_their_ids(admin, queue_name: str) -> None:
    fill(admin, queue_name, "abcd")

    def pulled() -> str:
        answer = json.loads(admin("message", "pull", queue_name, "--no-ack", "--json").out)
        identifier: str = answer["messages"][0]["id"]
        return identifier

    first, second, third = pulled(), pulled(), pulled()
    assert admin("message", "extend", queue_name, first) == (0, "", "")
    assert admin("message", "ack", queue_name, first) == (0, "", "")
    assert rows_of(admin("message", "nack", queue_name, second, third)) == [[second, "done"], [third, "done"]]
    assert counts(admin, queue_name) == (3, 0)
    late = admin("message", "ack", queue_name, first, second)
    assert (late.code, "2 of 2 messages" in late.one_line_error()) == (66, True)


def test_messages_of_rpc_clients_are_shown_decoded(admin, node: NodeProcess, queue_name: str) -> None:
    with Client(node.rpc) as client:
        client.push_many(queue_name, ["text", {"a": [1, b"\xff"]}, "\x1b[31mred"])
    peeked = rows_of(admin("message", "peek", queue_name, "--columns", "content_type,content"))
    shown = ["text", '{"a": [1, {"base64": "/w=="}]}', "\\x1b[31mred"]
    assert peeked == [["application/x-msgpack", text] for text in shown]
    assert counts(admin, queue_name) == (3, 0)
    assert admin("message", "pull", queue_name, "--no-ack").out == "text\n"
    pretty = admin("message", "pull", queue_name, "--no-ack", "--show", "json")
    assert json.loads(pretty.out) == {"a": [1, {"base64": "/w=="}]}
    assert pretty.out.count("\n") > 1
    code, seen = run_in_terminal("lmq-admin", "--node", node.http, "message", "pull", queue_name)
    assert (code, seen) == (0, "\\x1b[31mred\n")


def test_raw_and_hexadecimal_bytes(admin, queue_name: str) -> None:
    data = bytes(range(250, 256)) + b"end\n"
    for _ in range(2):
        admin("message", "push", queue_name, stdin=data)
    dump = admin("message", "pull", queue_name, "--no-ack").out
    assert dump == "00000000  fa fb fc fd fe ff 65 6e 64 0a                    ......end.\n"
    assert json.loads(admin("message", "peek", queue_name, "--json").out)["messages"][0]["state"] == "leased"
    raw = admin("message", "pull", queue_name, "--raw")
    assert raw.out.encode() == data.decode(errors="replace").encode()
    admin("message", "push", queue_name, "{}")
    assert admin("message", "pull", queue_name, "--show", "hex").out.split()[1:3] == ["7b", "7d"]


def test_peek_continues_where_it_ended(admin, queue_name: str) -> None:
    fill(admin, queue_name, "abc")
    first = json.loads(admin("message", "peek", queue_name, "--max", "2", "--json").out)
    assert [one["content"] for one in first["messages"]] == ["a", "b"]
    rest = rows_of(admin("message", "peek", queue_name, "--after", str(first["next"]), "--columns", "content"))
    assert rest == [["c"]]
    assert (
        "(More messages: continue with --after" in admin("message", "peek", queue_name, "--max", "2", "-o", "table").out
    )


# --- default properties ----------------------------------------------------------------------------------------------


@pytest.fixture
def no_defaults(admin) -> Iterator[None]:
    """Removes all default properties afterwards."""
    yield
    admin("defaults", "set", "-", "--yes", stdin="[]")


@pytest.mark.usefixtures("no_defaults")
def test_default_properties_are_changed_after_showing_the_difference(admin, queue_name: str) -> None:
    pattern = f"^{queue_name}"
    dry = admin("defaults", "add", pattern, "--retry", "7", "--dry-run")
    assert dry.code == 0
    assert f'+["{pattern}", {{"retry": 7}}]' in dry.err.splitlines()
    assert "would replace the default properties" in dry.out
    assert admin("defaults", "add", pattern, "--retry", "7").code == 2
    assert json.loads(admin("defaults", "show", "--json").out) == []

    assert admin("defaults", "add", pattern, "--retry", "7", "--yes").code == 0
    assert admin("defaults", "add", "^other", "--timeout", "5", "--last", "--yes").code == 0
    assert rows_of(admin("defaults", "show")) == [["1", pattern, "retry 7"], ["2", "^other", "timeout 5"]]
    fill(admin, queue_name, "a")
    assert ["retry", "7", "default"] in rows_of(admin("queue", "show", queue_name))

    changed = admin("defaults", "add", pattern, "--retry", "8", "--yes")
    assert [line for line in changed.err.splitlines() if line.startswith(("+[", "-["))] == [
        f'-["{pattern}", {{"retry": 7}}]',
        f'+["{pattern}", {{"retry": 8}}]',
    ]
    saved = admin("defaults", "show", "--json").out
    assert admin("defaults", "rm", "^other", "--yes").code == 0
    assert admin("defaults", "rm", "^other", "--yes").code == 66
    assert admin("defaults", "set", "-", "--yes", stdin=saved).code == 0
    assert admin("defaults", "show", "--json").out == saved
    assert "no changes" in admin("defaults", "set", "-", stdin=saved).one_line_error()

    edited = admin("defaults", "edit", "--yes", environment={"EDITOR": "sed -i s/8}/9}/", "VISUAL": ""})
    assert edited.code == 0, edited
    assert rows_of(admin("defaults", "show"))[0] == ["1", pattern, "retry 9"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "is not JSON"), ('[["^a", {"retries": 1}]]', "unknown"), ('[["(", {}]]', "regular expression")],
)
def test_malformed_default_properties_change_nothing(admin, text: str, reason: str) -> None:
    refused = admin("defaults", "set", "-", "--yes", stdin=text)
    assert refused.code == 65
    assert reason in refused.err.splitlines()[-1]
    assert json.loads(admin("defaults", "show", "--json").out) == []
