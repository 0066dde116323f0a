"""Standard output of a node, with readers that stop, return or close."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from lmqcluster.node.process.standard_output import StandardOutput

PENDING_BYTES = 64 * 1024
LINE = "x" * 99


class Pipe:
    """A pipe whose writing end is a text stream."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream = os.fdopen(writer, "w")
        self.output = StandardOutput(self.stream, pending_bytes_max=PENDING_BYTES)

    def read_until(self, last: bytes) -> list[str]:
        """Return the lines up to one that begins with `last`."""
        data = b""
        while not (data.endswith(b"\n") and data.splitlines()[-1].startswith(last)):
            piece = os.read(self.reader, 65536)
            assert piece, data[-200:]
            data += piece
        return data.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    with contextlib.suppress(OSError):
        os.close(made.reader)
    made.output.finish()
    with contextlib.suppress(OSError):
        made.stream.close()


def test_lines_arrive_in_order_and_whole(pipe: Pipe) -> None:
    pipe.output.write("first, ")
    pipe.output.write("in parts\nsecond\n")
    pipe.output.write("end")
    pipe.output.flush()
    pipe.output.write("\n")
    assert pipe.read_until(b"end") == ["first, in parts", "second", "end"]


def test_writers_do_not_wait_for_a_reader_and_missing_lines_are_counted(pipe: Pipe) -> None:
    written = 10_000
    for number in range(written):
        pipe.output.write(f"{number:05} {LINE}\n")
    assert pipe.output.dropped > 0
    assert pipe.output.is_full
    pipe.output.drop(7)
    seen = pipe.read_until(b"%d lines" % pipe.output.dropped)
    # The earlier lines are first, without a gap.
    assert seen[:-1] == [f"{number:05} {LINE}" for number in range(len(seen) - 1)]
    assert len(seen) - 1 + pipe.output.dropped == written + 7
    pipe.output.write("after\n")
    assert pipe.read_until(b"after") == ["after"]


def test_lines_of_several_threads_do_not_mix(pipe: Pipe) -> None:
    def write(letter: str) -> None:
        for _ in range(50):
            pipe.output.write(letter * 300 + "\n")

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.output.write("end\n")
    lines = pipe.read_until(b"end")
    assert len(lines) == 201
    assert all(len(set(line)) == 1 for line in lines[:-1])


def test_a_closed_reader_costs_only_lines(pipe: Pipe) -> None:
    os.close(pipe.reader)
    for _ in range(5):
        pipe.output.write("unread\n")
    pipe.output.finish()
    assert pipe.output.dropped == 5
    assert not pipe.output.is_full


def test_closing_waits_for_a_limited_time(pipe: Pipe) -> None:
    for _ in range(2 * PENDING_BYTES // len(LINE)):
        pipe.output.write(LINE + "\n")
    ended = threading.Thread(target=pipe.output.finish)
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
    # Later writes do not wait either.
    for _ in range(2 * PENDING_BYTES // len(LINE)):
        pipe.output.write(LINE + "\n")
    pipe.output.flush()


PROGRAM = """
import faulthandler, os, sys, threading, warnings
from lmqcluster.node.process.logs import configure_logging
from lmqcluster.node.process.standard_output import never_wait_for_readers
never_wait_for_readers()
configure_logging("info", "json")
faulthandler.enable()
for _ in range(300):
    print("x" * 99_999)
    print("x" * 99_999, file=sys.stderr)
    warnings.warn("odd", stacklevel=1)
    warnings.resetwarnings()
    faulthandler.dump_traceback()
def fail():
    raise RuntimeError("in a thread")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
open(sys.argv[1], "w").write("served")
raise RuntimeError("at the end")
"""


def test_no_writer_of_a_process_waits(tmp_path) -> None:
    """Both streams are one unread pipe, whose settings the parent shares and keeps."""
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "end")],
            stdout=writer,
            stderr=writer,
            timeout=120,
            check=False,
        )
        assert done.returncode == 1
        assert (tmp_path / "end").read_text() == "served"
        assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK
    finally:
        os.close(reader)
        os.close(writer)
