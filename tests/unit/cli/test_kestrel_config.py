"""``lmq-admin import kestrel-config``: the translation of a Kestrel configuration file, and hostile files."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from lmqcluster_cli.admin.imports.import_kestrel_config import FILE_BYTES_MAX, kestrel_config
from lmqcluster_cli.admin.imports.kestrel_config import DEPTH_MAX

PRODUCTION = """
import com.twitter.conversions.storage._
import net.lag.kestrel.config._

new KestrelConfig {
  listenAddress = "0.0.0.0"
  memcacheListenPort = 22133 /* and
     two more */
  textListenPort = 2222; thriftListenPort = None
  queuePath = "/var/spool/kestrel"
  clientTimeout = None
  maxOpenTransactions = 100

  // default queue settings:
  default.maxMemorySize = 128.megabytes
  default.maxItems = 500 * 1000
  default.maxAge = Some(1.day)

  admin.httpPort = 2223
  admin.statsNodes = new StatsConfig {
    reporters = new TimeSeriesCollectorConfig
  }

  queues = new QueueBuilder {
    name = "weather updates"
    maxAge = 1.5.hours
    maxItems = 1500000
    discardOldWhenFull = true
  } :: new QueueBuilder() {
    name = "-it's"
    val expireToQueue = "jobs ready"
    maxSize = 16.megabytes; maxItemSize = 64.kilobytes
    openTransactionTimeout = 500.milliseconds
    keepJournal = false
    fanoutOnly = false
    maxQueueAge = None
  } :: Nil

  aliases = List(new AliasBuilder { name = "all"; destinationQueues = List("weather updates", "a+b") })

  loggers = new LoggerConfig {
    level = Level.INFO
    handlers = new FileHandlerConfig { filename = "/var/log/kestrel/kestrel.log"; roll = Policy.Never }
  }
}
"""


def translated(tmp_path: Path, text: str | bytes) -> Result:
    file = tmp_path / "kestrel.scala"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return CliRunner().invoke(kestrel_config, [str(file)], standalone_mode=False)


def commands(result: Result) -> list[list[str]]:
    lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
    return [shlex.split(line) for line in lines]


def test_a_file_as_kestrel_ships_it(tmp_path: Path) -> None:
    result = translated(tmp_path, PRODUCTION)
    assert (result.exception, result.return_value, result.stderr) == (None, 0, "")
    create = ["lmq-admin", "queue", "set", "--create"]
    weather = ["--max-age", "5400", "--max-items", "1500000", "--discard-old-when-full", "--", "weather updates"]
    sizes = ["--expire-to-queue", "jobs ready", "--max-size", "16777216", "--max-item-size", "65536"]
    assert commands(result) == [
        ["lmq-admin", "defaults", "add", "--yes", ".", "--max-items", "500000", "--max-age", "86400"],
        [*create, *weather],
        [*create, *sizes, "--open-transaction-timeout", "0.5", "--no-fanout-only", "--", "-it's"],
        [*create, "--destination-queues", "weather updates", "--destination-queues", "a+b", "--", "all"],
    ]
    assert "# every node: lmq start --memcache 0.0.0.0:22133 --text 0.0.0.0:2222 (" in result.stdout
    assert "# every node: kestrel_open_reads_max = 100\n" in result.stdout
    for nothing in ("line 15: no equivalent of maxMemorySize", "line 34: no equivalent of keepJournal"):
        assert f"# {nothing}\n" in result.stdout


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("maxItems = 5", "line 2: not understood: maxItems"),
        ("queues = builders.map { b => b.build() }", "line 2: not understood: queues"),
        ('queues = new QueueBuilder { name = env("X") }', "line 2: the name of a QueueBuilder cannot be read"),
        ('queues = new QueueBuilder { name = "q"; maxAge = 5.megabytes }', "line 2: not understood: maxAge"),
        ('queues = new QueueBuilder { name = "q"; maxItems = limit(5) }', "line 2: not understood: maxItems"),
        ('aliases = new A { name = "q"; destinationQueues = List(x) }', "line 2: not understood: destinationQueues"),
        ("if (System.getenv) { maxItems = 3 }", "line 2: not understood: if"),
        (") 5", "line 2: not understood: )"),
    ],
)
def test_unknown_settings_are_reported(line: str, problem: str, tmp_path: Path) -> None:
    more = 'queues = new QueueBuilder { name = "other"; maxItems = 1 }'
    result = translated(tmp_path, "new KestrelConfig {\n" + line + "\n" + more + "\n}")
    assert result.return_value == 65
    assert f"lmq-admin: {problem}" in result.stderr
    # The rest is translated nevertheless.
    assert commands(result)[-1] == ["lmq-admin", "queue", "set", "--create", "--max-items", "1", "--", "other"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b'maxItems = 5 "new KestrelConfig {"',
        b"x" * (FILE_BYTES_MAX + 1),
        b"new KestrelConfig { queues = " + b"List(" * (DEPTH_MAX + 5),
        b"new KestrelConfig { a = " + b"new A { b = " * 100_000,
    ],
)
def test_other_files_are_refused(text: bytes, tmp_path: Path) -> None:
    result = translated(tmp_path, text)
    assert "cannot be read as a configuration of Kestrel" in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    "piece", ["(", "{", "/*", '"', '"""', "::", "List(", "a = ", "new ", "a.b.", "1.", "}", "\\", ")"]
)
def test_hostile_files_end_soon(piece: str, tmp_path: Path) -> None:
    for count in (1, 2, 20_000):
        result = translated(tmp_path, "new KestrelConfig { x = " + piece * count)
        assert result.exception is None or "cannot be read" in str(result.exception)


def test_names_cannot_become_commands_of_the_shell(tmp_path: Path) -> None:
    name = "x; rm -rf ~ $(id) `id` # '"
    file = 'new KestrelConfig {\nqueues = new QueueBuilder { name = "NAME"; maxItems = 1 }\n'.replace("NAME", name)
    result = translated(tmp_path, file + "weird\x1b[2J = what\n}")
    assert shlex.split(result.stdout)[-1] == name
    assert "\x1b" not in result.stderr


SCRIPT = "touch harmed"


@pytest.mark.parametrize("ending", ["\\n", "\\r", "\\u2028", "\\u0085", "\\t"])
@pytest.mark.parametrize(
    "line",
    [
        'listenAddress = "0.0.0.0VALUE #"',
        'default.expireToQueue = "aVALUE"',
        'queues = new QueueBuilder { name = "aVALUE"; maxItems = 1 }',
        'queues = new QueueBuilder { name = "a"; expireToQueue = "bVALUE" }',
        'aliases = new A { name = "a"; destinationQueues = List("bVALUE", "c") }',
        "admin.httpPortVALUE = 1",
    ],
)
def test_no_value_begins_a_new_line(line: str, ending: str, tmp_path: Path) -> None:
    value = line.replace("VALUE", f"{ending}{SCRIPT}")
    result = translated(tmp_path, "new KestrelConfig {\nmemcacheListenPort = 22133\n" + value + "\n}")
    assert all(one.startswith(("# ", "lmq-admin ")) for one in result.stdout.split("\n")[:-1])
    assert result.stdout.replace("\n", "").isprintable()
    # The recommendation of the help text, with a lmq-admin that does nothing.
    (tmp_path / "lmq-admin").symlink_to("/bin/true")
    path = f"{tmp_path}:/usr/bin:/bin"
    subprocess.run(
        ["sh", "-e"], input=result.stdout, text=True, cwd=tmp_path, check=True, timeout=60, env={"PATH": path}
    )
    assert not (tmp_path / "harmed").exists()
