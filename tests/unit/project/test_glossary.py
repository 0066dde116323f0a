"""Log events and names in the code use the words of the glossary, and none that it lists as words of other systems."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lmqcluster.core import Op
from lmqcluster.core.queue.counters import COUNTERS
from lmqcluster.protocols.http.v1.bodies.rendering import QUEUE_FIELDS
from lmqcluster.protocols.msgpack_rpc.methods.permissions import PERMISSIONS
from lmqcluster.wire.errors import ERRORS
from lmqcluster.wire.queue_options import QUEUE_OPTIONS

ROOT = Path(__file__).resolve().parents[3]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
TERMS = {word for term, _ in ROWS for word in re.findall(r"[a-z]+", term.lower())}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT_CHARS_MAX = 100
# Common words for push, pull, nack, lease, leader and follower in other systems; and former words of this project.
ELSEWHERE = {
    "publish", "published", "enqueue", "enqueued", "dequeue", "dequeued", "requeue", "requeued", "visibility",
    "master", "slave", "anew", "handover", "endings",
}  # fmt: skip
# Packages that translate the words of other systems.
FOREIGN = {"integrations", "memcache", "text", "thrift", "kestrel", "queued", "spark", "sqs"}
ORDINARY = {
    "abandon", "all", "any", "api", "begin", "by", "cancel", "change", "claim", "clear", "create", "cut", "defaults", "delete",
    "digest", "discard", "each", "end", "endpoints", "existing", "finish", "first", "for", "forget", "found", "from", "give",
    "in", "indexed", "items", "jobs", "keys", "leave", "move", "open", "or", "out", "poll", "refused", "renew", "report",
    "reserve", "rows", "salt", "set", "stream", "limits", "throttle", "total", "transaction", "update", "upgrade", "wait",
    "withdraw",
    "max", "age", "size", "old", "when", "full", "to", "queue", "backoff", "destination", "fanout", "only", "on",
    "lettered", "retry", "start",
}  # fmt: skip
GENERAL = {
    "arguments", "bad", "cluster", "conflict", "down", "exceeded", "host", "internal", "large", "left", "lost", "method",
    "name", "no", "not", "of", "overloaded", "part", "request", "reused", "shutting", "stored", "too", "unauthorized",
    "unknown", "unreachable", "bytes", "s", "auth", "count", "each", "get", "ping", "resume",
}  # fmt: skip
"""Words of error codes, fields and methods for general things that the project does not define."""
STEM_CHARS = 4


def events() -> Iterator[tuple[str, ast.expr]]:
    """Yield place and event of each call of a logger."""
    for path in sorted([*(ROOT / "lmqcluster").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]):
        place = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            logger = ast.unparse(node.func.value).lower()
            if node.func.attr in LEVELS and re.search(r"\b_?log(ger)?\b", logger):
                yield f"{place}:{node.lineno}", node.args[0]


def texts(event: ast.expr) -> list[str]:
    """Return the possible texts of an event, as written in the call."""
    return [node.value for node in ast.walk(event) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_log_events_are_short_stable_phrases_in_the_words_of_the_glossary() -> None:
    found = 0
    for place, event in events():
        assert not isinstance(event, (ast.JoinedStr, ast.BinOp)), f"{place}: what varies is a field"
        if FOREIGN & set(Path(place.partition(":")[0]).parts):
            continue
        for text in texts(event):
            found += 1
            assert len(text) <= EVENT_CHARS_MAX, place
            assert not text.endswith("."), f"{place}: a phrase, not a sentence"
            assert not text[0].isupper() or text.startswith("Raft"), f"{place}: begins with a small letter"
            assert not ELSEWHERE & set(re.findall(r"[a-z]+", text.lower())), f"{place}: {text}"
    assert found > 60


def test_operations_counters_and_properties_are_named_with_the_words_of_the_glossary() -> None:
    names = [*(one.name.lower() for one in Op), *COUNTERS, *QUEUE_OPTIONS]
    unknown = {name: word for name in names for word in name.split("_") if not is_known(word)}
    assert unknown == {}, "add the term to docs/glossary.md, or use one of its terms"


def test_error_codes_fields_and_methods_are_named_with_the_words_of_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    # LMQ's own methods have LMQ's names; the glossary translates them.
    lmqs = set(re.findall(r"`(\w+)` in LMQ's", glossary))
    methods = {method.decode().removesuffix("_many") for method in PERMISSIONS} - lmqs
    names = [*ERRORS, *QUEUE_FIELDS, *methods]
    unknown = {name: word for name in names for word in name.split("_") if word not in GENERAL and not is_known(word)}
    assert unknown == {}, "add the term to docs/glossary.md, or use one of its terms"


def test_a_word_in_italics_has_an_entry() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = {one.strip() for term, _ in rows for one in term.split(",")}
    referred = {word for _, meaning in rows for word in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", meaning)}
    assert referred
    assert {word for word in referred if not {word, word.removesuffix("s")} & terms} == set()


def is_known(word: str) -> bool:
    """Return whether the word, or another form of it, is in the glossary."""
    stems = tuple(known[:STEM_CHARS] for known in TERMS | ORDINARY if len(known) >= len("ack"))
    return word in ORDINARY or word.removeprefix("un").startswith(stems)


def test_functions_and_classes_are_not_named_with_words_of_other_systems() -> None:
    for package in ("core", "node", "replication", "wire"):
        for path in sorted((ROOT / "lmqcluster" / package).rglob("*.py")):
            if FOREIGN & set(path.stem.split("_")):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", node.name)}
                    assert not ELSEWHERE & words, f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
