"""A short run of the group loop; `python -m tests.integration.group_loop` is the long one."""

import asyncio

from .cluster import Cluster
from .group_loop import Book, group_loop


def test_groups_keep_their_order_over_kills(cluster: Cluster) -> None:
    book = asyncio.run(
        group_loop(cluster, groups=60, size=20, consumers=9, hold_s=0.05, kill_every_s=1.0, kills_min=2, seed=1)
    )
    print(book)
    assert not book.violations
    assert book.is_complete()


def test_the_book_finds_violations_of_group_order() -> None:
    book = Book(groups=1, size=3)
    book.delivered("g", 1)
    book.delivered("g", 2)
    assert "g: 2 was delivered while 1 was held, after 0.0 s" in book.violations
    book.settling("g")
    book.done.add(("g", 2))
    book.delivered("g", 2)
    assert "g: 2 was delivered after it was done" in book.violations
    book.settling("g")
    book.delivered("g", 1)
    assert "g: 1 was delivered after 2" in book.violations
