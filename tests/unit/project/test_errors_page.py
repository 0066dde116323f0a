"""The page of error codes matches the table of error codes."""

from __future__ import annotations

from lmqcluster.wire.errors import ERRORS
from tests.docs.errors import ADVICE, PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.docs.errors"


def test_there_is_advice_for_every_code_and_for_no_other() -> None:
    assert ADVICE.keys() == ERRORS.keys()
