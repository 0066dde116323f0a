"""One node at a time in a data directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lmqcluster_cli.shared.data_folder import hold_data_dir

from lmqcluster.node.config.config_error import ConfigError


def test_the_directory_is_created_and_released_afterwards(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "n1"
    for _ in range(2):
        with hold_data_dir(directory):
            assert directory.is_dir()


def test_a_second_node_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    with hold_data_dir(tmp_path):
        with pytest.raises(ConfigError, match=r"a node is using .*; stop the node first"), hold_data_dir(tmp_path):
            pass
        (tmp_path / "lmq.pid").write_text(f"{os.getpid()}\n")
        with pytest.raises(ConfigError, match=f"process {os.getpid()}.*; do that"), hold_data_dir(tmp_path, "do that"):
            pass


def test_a_stale_pid_file_does_not_prevent_a_start(tmp_path: Path) -> None:
    (tmp_path / "lmq.pid").write_text("1\n")
    with hold_data_dir(tmp_path):
        pass


def test_an_unusable_directory_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the data directory"), hold_data_dir(tmp_path / "file"):
        pass


def fails_with(directory: Path, name: str) -> None:
    with hold_data_dir(directory):
        (directory / name).mkdir(parents=True)
        raise ZeroDivisionError


def test_a_failure_leaves_no_new_empty_folders(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    directory = kept / "deep" / "n1"
    with pytest.raises(ZeroDivisionError):
        fails_with(directory, "snapshots")
    assert list(tmp_path.rglob("*")) == [kept]
    with pytest.raises(ZeroDivisionError):
        fails_with(directory, "deeper/folder")
    assert (directory / "deeper" / "folder").exists(), "a folder with contents stays"
