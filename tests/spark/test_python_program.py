"""`register` checks the Python that Spark would start for data sources."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lmqcluster.spark import register
from lmqcluster.spark.base.python_program import check_python


@pytest.fixture
def without_lmqcluster(tmp_path: Path) -> str:
    """A Python that sees the standard library alone, as that of the system does outside of a virtual environment."""
    program = tmp_path / "python3"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    program.chmod(0o700)
    return str(program)


def test_register_refuses_a_python_without_lmqcluster(
    spark: SparkSession, without_lmqcluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", without_lmqcluster)
    monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(ImportError) as caught:
        register(spark)
    for part in (without_lmqcluster, "No module named 'lmqcluster'", f"PYSPARK_PYTHON={sys.executable}"):
        assert part in str(caught.value)


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(ImportError, match=r"'python-missing', which cannot import lmqcluster.spark \(there is no such"):
        check_python("python-missing")


def test_the_own_python_and_another_one_with_lmqcluster_pass(tmp_path: Path) -> None:
    check_python(sys.executable)
    link = tmp_path / "python3"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o700)
    check_python(str(link))


def test_a_program_that_does_not_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("lmqcluster.spark.base.python_program._CHECK_S", 0.1)
    with pytest.raises(ImportError, match=r"no answer within 0\.1 s"):
        check_python(str(program))
