"""The runner of a page's examples finds errors in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.shell import Shell, Step, steps

PAGE = """
Text.

```console
$ echo 5f0c2a60-0000-4000-8000-000000000001
5f0c2a60-0000-4000-8000-000000000001
$ printf 'a\\n\\nb'
a

b
```

```text
$ not an example
```
"""
FIRST, SECOND = (f"5f0c2a60-0000-4000-8000-00000000000{number}" for number in (1, 2))


@pytest.fixture
def exact(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, os.environ, {"HOST:1": "elsewhere:2"}, exact=True) as shell:
        yield shell


@pytest.fixture
def lenient(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, os.environ, {}) as shell:
        yield shell


def test_examples_are_the_commands_of_console_blocks() -> None:
    assert list(steps(PAGE)) == [Step(f"echo {FIRST}", (FIRST,)), Step("printf 'a\\n\\nb'", ("a", "", "b"))]


def test_correct_output_is_accepted(exact: Shell) -> None:
    for step in steps(PAGE):
        exact.check(step)
    exact.check(Step("echo HOST:1; echo date: now", ("HOST:1", "date: then")))


@pytest.mark.parametrize(
    "step",
    [
        Step("echo a", ("b",)),
        Step("echo 1", ("2",)),
        Step("echo a", ()),
        Step("true", ("a",)),
        Step("false", ()),
        Step("echo oops >&2", ()),
    ],
    ids=lambda step: step.command,
)
def test_different_output_is_found(exact: Shell, step: Step) -> None:
    with pytest.raises(AssertionError, match=step.command):
        exact.check(step)


def test_numbers_of_tables_may_differ_and_those_of_json_may_not(lenient: Shell) -> None:
    lenient.check(Step("echo 12 messages", ("7 messages",)))
    lenient.check(Step("echo a; echo b; echo c", ("a", "...", "c")))
    with pytest.raises(AssertionError, match="but the page shows"):
        lenient.check(Step("""echo '{"size": 12}'""", ('{"size": 7}',)))


def test_an_id_of_a_page_always_maps_to_the_same_id(exact: Shell) -> None:
    exact.check(Step(f"echo {SECOND}", (FIRST,)))
    # In a command it stands for the id of the run.
    exact.check(Step(f"echo {FIRST}", (FIRST,)))
    with pytest.raises(AssertionError, match="another id than before"):
        exact.check(Step("echo 00000000-0000-4000-8000-000000000000", (FIRST,)))
