"""The Python program that Spark starts for data sources, on the driver's machine and on executors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Final

__all__ = ["check_python"]

_CHECK_S: Final = 60.0


def check_python(program: str) -> None:
    """Check that a program on this machine can import lmqcluster, unless it is the Python of this process.

    Raises:
        ImportError: it cannot, or there is no such program.
    """
    found = shutil.which(program)
    if found == sys.executable:
        return
    reason = "there is no such program" if found is None else _why_not(found)
    if not reason:
        return
    raise ImportError(
        f"lmq: Spark would start {found or program!r}, which cannot import lmqcluster.spark ({reason}). Set the environment "
        f"variable PYSPARK_PYTHON={sys.executable} before the session is created, or activate the virtual environment."
    )


def _why_not(program: str) -> str:
    """Return why a program cannot import lmqcluster, empty if it can."""
    command = [program, "-c", "import lmqcluster.spark"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_S, check=False)  # noqa: S603  Spark would start it
    except subprocess.TimeoutExpired:
        return f"no answer within {_CHECK_S:g} s"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
