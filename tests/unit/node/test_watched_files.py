"""The watch over certificates: pairs that are replaced one after the other, and links that Kubernetes moves."""

from __future__ import annotations

from pathlib import Path

from lmqcluster.node.access.watched_files import WatchedFiles


class Watched:
    """Two files, and the number of reported changes."""

    def __init__(self, *paths: Path) -> None:
        self.changes = 0
        self._watch = WatchedFiles(paths, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def look(self) -> int:
        """Look once; return the number of changes until now."""
        self._watch.note(self._watch._stamps())
        return self.changes


def test_a_pair_is_reported_once_when_both_files_are_replaced(tmp_path: Path) -> None:
    cert, key = tmp_path / "node.crt", tmp_path / "node.key"
    cert.write_text("old")
    key.write_text("old")
    watched = Watched(cert, key)
    assert [watched.look() for _ in range(2)] == [0, 0]
    cert.write_text("renewed")
    assert watched.look() == 0
    key.write_text("renewed too")
    assert [watched.look() for _ in range(3)] == [0, 1, 1]


def test_a_file_that_is_absent_for_a_moment_is_no_error(tmp_path: Path) -> None:
    cert = tmp_path / "node.crt"
    cert.write_text("old")
    watched = Watched(cert)
    cert.unlink()
    assert watched.look() == 0
    cert.write_text("renewed")
    assert [watched.look() for _ in range(2)] == [0, 1]


def test_a_link_to_another_folder_is_a_change(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"data{number}").mkdir()
        (tmp_path / f"data{number}" / "tls.crt").write_text(str(number))
    link, unfinished = tmp_path / "..data", tmp_path / "..data_tmp"
    link.symlink_to("data1")
    watched = Watched(link / "tls.crt")
    unfinished.symlink_to("data2")
    unfinished.replace(link)
    assert [watched.look() for _ in range(3)] == [0, 1, 1]
