"""`python -m tests.plants [NAME ...]`: plant each bug into a copy of the sources and run its checks, which
must fail.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.plants.plant import Plant, copy_sources, load_plants

CAUGHT, FAILED, HUNG = "caught", "NOT CAUGHT", "caught (hangs)"
_TESTS_FAILED = 1
"""The exit code with which pytest and the simulator report a failure."""


def main() -> int:
    """Run the program; return 1 if a bug is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.plants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of plants (default: all that are not harmless)")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent checks (default 1)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a check counts as hung")
    parser.add_argument("--clean", action="store_true", help="plant nothing: the checks must pass")
    parser.add_argument("--output", action="store_true", help="show the output of the checks")
    options = parser.parse_args()
    plants = load_plants()
    unknown = sorted(set(options.names) - plants.keys())
    if unknown:
        parser.error(f"there are no plants {', '.join(unknown)}")
    chosen = [plants[name] for name in options.names or sorted(plants)]
    runs = [(plant, check) for plant in chosen for check in plant.checks]
    missed = 0
    with ThreadPoolExecutor(options.jobs) as threads:
        for plant in chosen:
            if plant.harmless:
                print(f"{plant.name}  harmless: {plant.harmless}", flush=True)
        for (plant, check), found in zip(
            runs, threads.map(lambda run: _run(run[0], run[1], options), runs), strict=True
        ):
            verdict, seconds, output = found
            missed += (verdict == FAILED) != options.clean
            print(f"{plant.name}  {verdict}  {seconds:.1f} s  {check}", flush=True)
            if options.output or verdict not in (CAUGHT, FAILED, HUNG):
                print(output, flush=True)
    print(f"{len(runs)} checks of {len(chosen)} plants, {missed} not as expected")
    return 1 if missed else 0


def _run(plant: Plant, check: str, options: argparse.Namespace) -> tuple[str, float, str]:
    """Return the verdict, the duration of the check in seconds, and its output."""
    with tempfile.TemporaryDirectory(prefix=f"plant-{plant.name}-") as folder:
        root = Path(folder)
        copy_sources(root)
        if not options.clean:
            for file, text in plant.edited().items():
                (root / file).write_text(text, encoding="utf-8")
        started_s = time.monotonic()
        code, output = _call(_command(check), root, options.limit)
        seconds = time.monotonic() - started_s
    if code is None:
        return HUNG, seconds, output
    if code in (0, _TESTS_FAILED):
        return CAUGHT if code else FAILED, seconds, output
    return f"check ended with code {code}", seconds, output


def _command(check: str) -> list[str]:
    kind, *more = shlex.split(check)
    if kind == "sim":
        subject, profile, seed, seeds = more
        run = ["--subject", subject, "--profile", profile, "--seed", seed, "--seeds", seeds, "--first"]
        return [sys.executable, "-m", "tests.simulation", *run]
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--rootdir=."]
    return [sys.executable, "-m", "pytest", *options, kind, *more]


def _call(command: list[str], root: Path, limit_s: float) -> tuple[int | None, str]:
    """Run a command in a folder with a new process group; the code is None if it had to be killed."""
    # The fixed examples of `make test` miss a bug by chance at times, so these runs draw more of them.
    examples = os.environ.get("LMQ_PROPERTY_EXAMPLES", "1000")
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "LMQ_PROPERTY_SHRINK": "no",
        "LMQ_PROPERTY_EXAMPLES": examples,
    }
    with (root / "output").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        code: int | None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read()


if __name__ == "__main__":
    sys.exit(main())
