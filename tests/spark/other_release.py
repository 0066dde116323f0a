"""Other releases of PySpark than the one that the tests use.

``python -m tests.spark.other_release 4.2.1`` installs that release into a separate virtual environment, in front of
what is installed for the tests, shows what the release can do, and with ``--tests`` runs the main tests of Spark with
it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from tests.integration.cluster import Cluster

from .test_connect import install_default_source

ROOT = Path(__file__).parents[2]
MAIN_TESTS = ("batch_read", "stream_read", "write", "repeated_writes", "contact", "connect", "pipeline_program")


def install(release: str) -> Path:
    """Return a Python with that release of PySpark, and the other packages of `.venv`."""
    folder = ROOT / "build" / f"pyspark-{release}"
    python = folder / "bin" / "python"
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    if not (packages / "others.pth").exists():
        venv.create(folder)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, f"pyspark=={release}"], check=True)
        install_default_source(packages)
        others = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (packages / "others.pth").write_text(others)
    return python


def main() -> int:
    """Return the exit code: that of the tests, or 0."""
    options = argparse.ArgumentParser(prog="python -m tests.spark.other_release", description=__doc__)
    options.add_argument("release", help="for example 4.2.1")
    options.add_argument("--tests", action="store_true", help="run the main tests of Spark too")
    given = options.parse_args()
    python = install(given.release)
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    with tempfile.TemporaryDirectory(prefix="lmq-release-") as name, Cluster(1) as cluster:
        program = [str(python), "-m", "tests.spark.release_program", cluster[0].rpc, name]
        done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-2000:])
        return 1
    for operation, outcome in json.loads(done.stdout.splitlines()[-1]).items():
        print(f"{operation:14} {outcome}")
    if not given.tests:
        return 0
    tests = [f"tests/spark/test_{name}.py" for name in MAIN_TESTS]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
