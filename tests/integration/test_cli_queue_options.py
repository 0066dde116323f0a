"""``lmq-admin``: options of queues and messages beyond LMQ's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .cluster import NodeProcess
from .programs import Result, run_here

Admin = Callable[..., Result]


@pytest.fixture
def admin(node: NodeProcess) -> Admin:
    """Runs lmq-admin against the shared node, in this process."""
    return lambda *arguments, **more: run_here("--node", node.http, *arguments, **more)


def done(result: Result) -> str:
    assert (result.code, result.err) == (0, ""), result
    return result.out


def own_properties(admin: Admin, queue: str) -> dict[str, object]:
    shown: dict[str, object] = json.loads(done(admin("queue", "show", queue, "--json")))["own_properties"]
    return shown


def test_properties_with_units(admin: Admin, queue_name: str) -> None:
    words = [
        "--max-size",
        "2k",
        "--max-age",
        "5m",
        "--retry-backoff",
        "2",
        "--discard-old-when-full",
        "--timeout",
        "1.5m",
        "--key-window",
        "5m",
        "--key-scope",
        "group",
    ]
    done(
        admin("queue", "set", queue_name, "--create", *words, "--destination-queues", "a", "--destination-queues", "b")
    )
    assert own_properties(admin, queue_name) == {
        "destination_queues": ["a", "b"], "discard_old_when_full": True, "key_scope": "group", "key_window": 300,
        "max_age": 300, "max_size": 2048, "retry_backoff": 2, "timeout": 90,
    }  # fmt: skip
    done(
        admin(
            "queue",
            "set",
            queue_name,
            "--unset",
            "max_size",
            "--unset",
            "destination_queues",
            "--no-discard-old-when-full",
        )
    )
    assert own_properties(admin, queue_name) == {
        "discard_old_when_full": False, "key_scope": "group", "key_window": 300, "max_age": 300, "retry_backoff": 2,
        "timeout": 90,
    }  # fmt: skip
    wrong = admin("queue", "set", queue_name, "--max-age", "0")
    assert (wrong.code, "max_age" in wrong.one_line_error()) == (65, True)
    assert admin("queue", "set", queue_name).code == 2
    assert admin("queue", "set", queue_name, "--key-scope", "all").code == 2


def test_a_full_queue_is_reported(admin: Admin, queue_name: str) -> None:
    done(admin("queue", "set", queue_name, "--create", "--max-items", "1"))
    done(admin("message", "push", queue_name, "x"))
    refused = admin("message", "push", queue_name, "y")
    assert (refused.code, "is full: max_items is 1;" in refused.one_line_error()) == (69, True)
    waited = admin("message", "push", queue_name, "y", "--wait", "200ms")
    assert (waited.code, "had no room while the push waited" in waited.one_line_error()) == (69, True)


def test_messages_with_options(admin: Admin, queue_name: str) -> None:
    done(admin("message", "push", queue_name, "later", "--delay", "1h"))
    done(admin("message", "push", queue_name, "second", "--label", "table 7", "--group", "g"))
    done(admin("message", "push", queue_name, "first", "--priority", "-1", "--ttl", "1h"))
    assert done(admin("message", "pull", queue_name, "--max", "5")) == "first\nsecond\n"
    assert json.loads(done(admin("queue", "show", queue_name, "--json")))["delayed"] == 1


def test_labels(admin: Admin, queue_name: str) -> None:
    for content in "abc":
        done(admin("message", "push", queue_name, content, "--label", "x" if content != "b" else "y"))
    peeked = json.loads(done(admin("message", "peek", queue_name, "--label", "x", "--json")))["messages"]
    assert [message["content"] for message in peeked] == ["a", "c"]
    done(admin("message", "push", queue_name, "d", "--label", "x", "--attribute", "number:=7"))
    limited = admin("message", "withdraw", queue_name, "x", "--attribute", "number=7", "--dry-run")
    assert (
        done(limited) == f"would remove up to 3 messages with label x and attribute number=7 from queue {queue_name}\n"
    )
    limited = admin("message", "withdraw", queue_name, "x", "--attribute", "number:=7", "--yes", "--json")
    assert json.loads(done(limited)) == {"withdrawn": 1}
    what = f"remove 2 messages with label x from queue {queue_name}"
    assert done(admin("message", "withdraw", queue_name, "x", "--dry-run")) == f"would {what}\n"
    refused = admin("message", "withdraw", queue_name, "x")
    assert (refused.code, what in refused.one_line_error()) == (2, True)
    assert json.loads(done(admin("message", "withdraw", queue_name, "x", "--yes", "--json"))) == {"withdrawn": 2}
    assert done(admin("message", "pull", queue_name, "--max", "5")) == "b\n"
    assert admin("message", "withdraw", f"{queue_name}-none", "x", "--yes").code == 66


def test_dead_letters_are_redriven(admin: Admin, queue_name: str) -> None:
    dead = f"{queue_name}.dead"
    done(admin("queue", "set", queue_name, "--create", "--retry", "0", "--dead-letter-queue", dead))
    for content in "abc":
        done(admin("message", "push", queue_name, content))
    pulled = json.loads(done(admin("message", "pull", queue_name, "--max", "5", "--no-ack", "--json")))["messages"]
    done(admin("message", "nack", queue_name, *(message["id"] for message in pulled), "--json"))
    assert done(admin("queue", "redrive", dead, "--dry-run")) == (
        f"would send messages of queue {dead} (3 waiting messages) to where they came from\n"
    )
    assert json.loads(done(admin("queue", "redrive", dead, "--max", "1", "--yes", "--json"))) == {"redriven": 1}
    assert json.loads(done(admin("queue", "redrive", dead, "--rate", "1000", "--yes", "--json"))) == {"redriven": 2}
    assert done(admin("message", "pull", queue_name, "--max", "5")) == "a\nb\nc\n"


def test_single_dead_letters_are_redriven_and_purged(admin: Admin, queue_name: str) -> None:
    dead = f"{queue_name}.dead"
    done(admin("queue", "set", queue_name, "--create", "--retry", "0", "--dead-letter-queue", dead))
    for content in "abc":
        done(admin("message", "push", queue_name, content))
    pulled = json.loads(done(admin("message", "pull", queue_name, "--max", "5", "--no-ack", "--json")))["messages"]
    done(admin("message", "nack", queue_name, *(message["id"] for message in pulled), "--json"))
    letters = json.loads(done(admin("message", "peek", dead, "--json")))["messages"]
    _a, b, c = [str(one["sequence"]) for one in letters]
    text = f"would send at most 1 message of queue {dead} (3 waiting messages) to where they came from\n"
    assert done(admin("queue", "redrive", dead, "--sequence", b, "--dry-run")) == text
    assert json.loads(done(admin("queue", "redrive", dead, "--sequence", b, "--yes", "--json"))) == {"redriven": 1}
    purged = done(admin("queue", "purge", dead, "--sequence", c, "--sequence", c, "--yes", "--json"))
    assert json.loads(purged) == {"purged": 1}
    assert done(admin("message", "pull", queue_name, "--max", "5")) == "b\n"
    assert done(admin("message", "pull", dead, "--max", "5")) == "a\n"
    for wrong in (["--max", "1"], ["--rate", "1"]):
        assert admin("queue", "redrive", dead, "--sequence", b, *wrong, "--yes").code == 2
    assert admin("queue", "purge", dead, "--sequence", b, "--keep", "1", "--yes").code == 2


def test_bindings(admin: Admin, queue_name: str) -> None:
    copy = f"{queue_name}.copy"
    assert json.loads(done(admin("queue", "bind", queue_name, copy, "--json"))) == {"new": True}
    assert json.loads(done(admin("queue", "bindings", queue_name, "--json")))["targets"] == [copy]
    done(admin("message", "push", queue_name, "x"))
    assert done(admin("message", "pull", copy)) == "x\n"
    assert json.loads(done(admin("queue", "unbind", queue_name, copy, "--json"))) == {"ended": True}
    assert admin("queue", "bindings", f"{queue_name}-none").code == 66
    assert admin("queue", "bind", queue_name, queue_name).code == 65


def test_returned_messages_and_leases(admin: Admin, queue_name: str) -> None:
    done(admin("message", "push", queue_name, "x"))
    (message,) = json.loads(done(admin("message", "pull", queue_name, "--no-ack", "--json")))["messages"]
    done(admin("message", "extend", queue_name, message["id"], "--lease", "2h"))
    (peeked,) = json.loads(done(admin("message", "peek", queue_name, "--json")))["messages"]
    assert 7000 < peeked["due_in_s"] <= 7200
    done(admin("message", "nack", queue_name, message["id"], "--delay", "1h"))
    (peeked,) = json.loads(done(admin("message", "peek", queue_name, "--json")))["messages"]
    assert (peeked["state"], 3000 < peeked["due_in_s"] <= 3600) == ("delayed", True)


def test_default_rules(admin: Admin, queue_name: str) -> None:
    added = admin("defaults", "add", f"^{queue_name}$", "--max-items", "7", "--delay", "5m", "--yes")
    assert added.code == 0, added
    shown = json.loads(done(admin("queue", "set", queue_name, "--create", "--retry", "1", "--json")) or "null")
    assert shown is None
    assert json.loads(done(admin("queue", "show", queue_name, "--json")))["properties"] == {
        "accum": 0, "delay": 300, "max_items": 7, "retry": 1, "timeout": 30,
    }  # fmt: skip
    assert admin("defaults", "rm", f"^{queue_name}$", "--yes").code == 0
