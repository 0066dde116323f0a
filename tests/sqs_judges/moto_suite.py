"""The tests of moto, an emulator of AWS, against the SQS port of a node.

``python -m tests.sqs_judges.moto_suite`` fetches moto's source distribution, runs its tests of SQS in server mode, and
exits with 1 if a test fails that is not in the table of expected differences, or if one of the table passes.
Further arguments are those of pytest, such as ``-k fifo``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from ..installing import one_at_a_time
from ..integration.cluster import NodeProcess, clean_environment
from .moto_differences import DIFFERENCES, MODULES
from .moto_front import MotoFront

__all__ = ["judge", "run_suite"]

MOTO: Final = "moto==5.2.5"
BUILD: Final = Path(__file__).parents[2] / "build" / "sqs-judges"
NEEDED: Final = ("responses==0.25.8", "xmltodict==1.0.2", "werkzeug==3.1.3", "freezegun==1.5.5")
"""Packages that moto's tests import and the test environment lacks."""
ACCOUNT: Final = "123456789012"
URL: Final = "http://localhost:5000"
"""Where moto's server listens, which its tests expect in the URLs of queues."""
INSTALL_S: Final = 300
DEADLINE_S: Final = 1200
TEST_S: Final = 120


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, timeout=INSTALL_S)


def fetch_moto() -> tuple[Path, Path]:
    """Fetch moto and what it needs, unless they are there; return its sources and a folder for ``PYTHONPATH``."""
    sources, packages = BUILD / MOTO.replace("==", "-"), BUILD / "packages"
    with one_at_a_time():
        if not packages.exists():
            _pip("install", "--no-deps", "--target", f"{packages}.new", *NEEDED)
            Path(f"{packages}.new").rename(packages)
        if not sources.exists():
            with tempfile.TemporaryDirectory() as folder:
                _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", folder, MOTO)
                (archive,) = Path(folder).glob("*.tar.gz")
                with tarfile.open(archive) as opened:
                    opened.extractall(BUILD, filter="data")
    return sources, packages


def run_suite(folder: Path, arguments: Sequence[str] = ()) -> dict[str, str]:
    """Run moto's tests against a node whose data is in `folder`; return the outcomes by ``MODULE::TEST``.

    An outcome is ``passed``, ``skipped``, or the first line of what failed.
    """
    sources, packages = fetch_moto()
    report = folder / "report.xml"
    options = ("--durability=memory", "--sqs-ignore=policy,encryption", f"--sqs-account={ACCOUNT}", f"--sqs-url={URL}")
    with NodeProcess(folder, arguments=options) as node, MotoFront(node.sqs, ACCOUNT) as front:
        environment = clean_environment() | {
            "PYTHONPATH": os.pathsep.join(map(str, (packages, sources))),
            "TEST_SERVER_MODE": "true",
            "TEST_SERVER_MODE_ENDPOINT": f"http://{front.address}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_S}"]
        command += [f"--junitxml={report}", *arguments, *(f"tests/test_sqs/{name}.py" for name in MODULES)]
        subprocess.run(command, cwd=sources, env=environment, timeout=DEADLINE_S, check=False)
    return _outcomes(report)


def _outcomes(report: Path) -> dict[str, str]:
    found = {}
    for case in ET.parse(report).iter("testcase"):
        outcome = "passed"
        for kind in ("failure", "error", "skipped"):
            node = case.find(kind)
            if node is not None:
                outcome = kind if kind == "skipped" else (node.get("message") or kind).splitlines()[0]
                break
        found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
    return found


def judge(outcomes: dict[str, str]) -> list[str]:
    """Return what is wrong: tests that fail and are not expected to, and rows of the table that are out of date."""
    failed = {name: why for name, why in outcomes.items() if why not in ("passed", "skipped")}
    wrong = [f"{name} fails: {why}" for name, why in failed.items() if name not in DIFFERENCES]
    return wrong + [
        f"{name} passes, though the table says: {DIFFERENCES[name]}"
        for name, why in outcomes.items()
        if name in DIFFERENCES and why == "passed"
    ]


def main() -> int:
    """Run the suite; return 1 if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_suite(Path(folder), sys.argv[1:])
    wrong = judge(outcomes)
    counts = [sum(why == kind for why in outcomes.values()) for kind in ("passed", "skipped")]
    differences = len(outcomes) - sum(counts) - sum(" fails: " in one for one in wrong)
    print(f"{counts[0]} passed, {counts[1]} skipped by moto, {differences} differ as expected")
    print("\n".join(wrong))
    return int(bool(wrong) or not outcomes)


if __name__ == "__main__":
    sys.exit(main())
