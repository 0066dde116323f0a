"""The contents of Kestrel's journals: intact, torn and damaged."""

from __future__ import annotations

import random
import struct
from collections import deque
from pathlib import Path

import pytest
from lmqcluster_cli.admin.imports.kestrel_journal import Journal, journal_files, queues_in


def add(body: bytes, expires_ms: int = 0) -> bytes:
    return b"\2" + struct.pack("<iqq", len(body) + 16, 1_000, expires_ms) + body


def left(folder: Path, queue: str = "q") -> list[bytes]:
    return [content for _, content in Journal.read(journal_files(folder, queue)).contents(0)]


def opened(number: int) -> bytes:
    return b"\x09" + struct.pack("<i", number)


def settled(code: int, number: int) -> bytes:
    return bytes((code,)) + struct.pack("<i", number)


def test_every_operation(tmp_path: Path) -> None:
    old = b"\0" + struct.pack("<ii", 4 + 3, 7) + b"old"
    numbered = b"\7" + struct.pack("<iiqq", 5, 16 + 1, 1, 9) + b"n"
    more = b"\x08" + struct.pack("<iiqq", 8, 16 + 1, 1, 0) + b"c"
    operations = [
        *(old, add(b"gone"), add(b"", 5), numbered, add(b"e"), add(b"f")),
        *(opened(4), b"\1", settled(5, 4)),  # "old" is open, "gone" is removed, "old" is first again
        settled(4, 6),
        *(b"\3", b"\3"),  # "old" under 7, "" under 8
        settled(6, 7),
        more,  # "" is confirmed
        *(opened(9), opened(10)),  # "n" and "e" stay open
        settled(6, 1234),
    ]
    (tmp_path / "q").write_bytes(b"".join(operations))
    journal = Journal.read([tmp_path / "q"])
    assert [content for _, content in journal.contents(0)] == [b"n", b"e", b"f", b"c"]
    assert [item.expires_ms for item in journal.items] == [9, 0, 0, 0]
    assert (journal.damages, journal.missing) == ([], 0)


def test_files_in_their_order(tmp_path: Path) -> None:
    files = {
        "q.1": add(b"replaced"),
        "q.2.pack": add(b"packed"),
        "q.2": add(b"replaced too"),
        "q.10": add(b"later"),
        "q.9": add(b"early"),
        "q": add(b"current"),
        "q.11~~": add(b"unfinished"),
        "q~~1": add(b"unfinished"),
        "qq": b"\1",
        "q+child.3": add(b"another"),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    assert left(tmp_path) == [b"packed", b"early", b"later", b"current"]
    assert left(tmp_path, "q+child") == [b"another"]
    assert queues_in(tmp_path) == ["q", "q+child", "qq"]
    assert Journal.read(journal_files(tmp_path, "qq")).missing == 1
    assert journal_files(tmp_path, "none") == []


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(add(b"what only the importer may read"))
    folder = tmp_path / "journals"
    folder.mkdir()
    (folder / "q").write_bytes(add(b"item"))
    for name in ("linked", "q.100", "q.100.pack"):
        (folder / name).symlink_to(secret)
        with pytest.raises(OSError, match=f"{name} is a symbolic link"):
            queues_in(folder)
        if name.startswith("q"):
            with pytest.raises(OSError, match=f"{name} is a symbolic link"):
                journal_files(folder, "q")
        (folder / name).unlink()
    (folder / "q").unlink()
    (folder / "q").symlink_to(secret)
    with pytest.raises(OSError, match="q is a symbolic link"):
        journal_files(folder, "q")


def test_a_file_that_is_torn_anywhere_is_read_up_to_its_last_whole_operation(tmp_path: Path) -> None:
    operations = [add(b"first"), add(b"second" * 10), opened(1), add(b"third")]
    states = [[], [b"first"], [b"first", b"second" * 10], [b"first", b"second" * 10]]
    whole, after = b"".join(operations), add(b"after")
    (tmp_path / "q").write_bytes(after)
    for size in range(len(whole)):
        (tmp_path / "q.1").write_bytes(whole[:size])
        done = max(count for count in range(len(operations)) if len(b"".join(operations[:count])) <= size)
        assert left(tmp_path) == [*states[done], b"after"], size
        damages = Journal.read(journal_files(tmp_path, "q")).damages
        torn = size - len(b"".join(operations[:done]))
        assert [one.left_bytes for one in damages] == ([torn] if torn else [])


@pytest.mark.parametrize(
    "wrong", [b"\x0a", b"\xff" * 50, b"\2\xff\xff\xff\xff" + b"x" * 40, b"\2\xff\xff\xff\x7f" + b"x" * 40]
)
def test_an_invalid_operation_ends_its_file(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "q.1").write_bytes(add(b"a") + wrong + add(b"lost"))
    (tmp_path / "q").write_bytes(add(b"b"))
    journal = Journal.read(journal_files(tmp_path, "q"))
    assert [content for _, content in journal.contents(0)] == [b"a", b"b"]
    (damage,) = journal.damages
    assert (damage.path.name, damage.offset, damage.left_bytes) == ("q.1", 22, len(wrong) + 22 + 3)


def test_random_journals_leave_what_a_queue_would_have(tmp_path: Path) -> None:
    rng = random.Random(20_261_123)
    for _ in range(30):
        waiting: deque[bytes] = deque()
        held: dict[int, bytes] = {}
        order: list[bytes] = []
        files = [bytearray() for _ in range(3)]
        for step in range(200):
            file, kind = files[step // 70], rng.randrange(6)
            if kind <= 1 or not waiting:
                body = b"%d" % step * rng.randrange(1, 4)
                file += add(body)
                waiting.append(body)
                order.append(body)
            elif kind == 2:
                file += b"\1"
                waiting.popleft()
            elif kind == 3:
                file += opened(step)
                held[step] = waiting.popleft()
            elif held:
                number = rng.choice(list(held))
                file += settled(kind + 1, number)
                body = held.pop(number)
                if kind == 4:
                    waiting.appendleft(body)
        for name, data in zip(("q.1", "q.2", "q"), files, strict=True):
            (tmp_path / name).write_bytes(data)
        assert left(tmp_path) == [*sorted(held.values(), key=order.index), *waiting]


def test_progress_is_reported_also_for_a_damaged_file(tmp_path: Path) -> None:
    sound = add(b"x" * 1000) * 3_000
    (tmp_path / "q.1").write_bytes(sound + b"\xff" + b"y" * 3_000_000)
    (tmp_path / "q").write_bytes(add(b"z" * 5_000_000))
    sizes: list[int] = []
    journal = Journal.read(journal_files(tmp_path, "q"), sizes.append)
    assert (len(journal.items), len(journal.damages)) == (3_001, 1)
    assert sum(sizes) == sum(path.stat().st_size for path in tmp_path.iterdir())
    # Often enough for a person who watches it.
    assert max(sizes) < 2 << 20
