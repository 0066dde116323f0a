"""The runner of a page's examples finds what is wrong with them."""

from __future__ import annotations

import pytest

from tests.docs.examples import Example, Session, examples

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


def test_examples_are_the_commands_of_console_blocks() -> None:
    assert list(examples(PAGE)) == [Example(f"echo {FIRST}", FIRST), Example("printf 'a\\n\\nb'", "a\n\nb")]


def test_what_a_page_says_is_accepted() -> None:
    session = Session({"HOST:1": "elsewhere:2"})
    for example in examples(PAGE):
        session.run(example)
    session.run(Example("echo HOST:1; echo date: now", "HOST:1\ndate: then"))


@pytest.mark.parametrize(
    "example",
    [
        Example("echo a", "b"),
        Example("echo a", ""),
        Example("true", "a"),
        Example("false", ""),
        Example("echo oops >&2", ""),
    ],
    ids=lambda example: example.command,
)
def test_what_differs_is_found(example: Example) -> None:
    with pytest.raises(AssertionError, match=example.command):
        Session({}).run(example)


def test_an_id_stands_for_the_same_id_wherever_the_page_shows_it() -> None:
    session = Session({})
    session.run(Example(f"echo {SECOND}", FIRST))
    assert session.ids == {FIRST: SECOND}
    session.run(Example(f"echo {FIRST}", FIRST))
    with pytest.raises(AssertionError):
        session.run(Example("echo 00000000-0000-4000-8000-000000000000", FIRST))
