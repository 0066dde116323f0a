"""An executor in a separate process runs in the environment that docs/spark.md packs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmqcluster import Client
from tests.docs.shell import steps
from tests.integration.cluster import NodeProcess, clean_environment

from .queues import pulled

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "lmqcluster", "cli", "chaos")
DEADLINE_S = 300.0
QUEUE = "packed"
ROWS = 20
JOB = f"""
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lmqcluster.spark import register


def place(_number):
    import lmqcluster

    return lmqcluster.__file__


servers, queue = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
rows = spark.range({ROWS}).select(f.udf(place, "STRING", useArrow=False)("id").alias("value"))
rows.write.format("lmq").mode("append").option("lmq.servers", servers).option("queue", queue).save()
spark.stop()
"""
"""It writes where each executor has imported lmqcluster from."""
SETTINGS = {
    "spark.executor.memory": "768m",
    "spark.log.level": "ERROR",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
}


def commands(replaced: dict[str, str]) -> list[str]:
    """Return the commands of the page that pack an environment with venv-pack and submit a job."""
    section = (
        PAGE.read_text(encoding="utf-8").partition("\n**A packed environment**")[2].partition("\nWith venv-pack")[0]
    )
    found = [step.command for step in steps(section)]
    for shown, real in replaced.items():
        assert any(shown in command for command in found), shown
        found = [command.replace(shown, real) for command in found]
    return found


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the project, in which pip may build."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def test_a_job_runs_in_the_environment_that_the_page_packs(
    applications: Callable[[], list[Path]], sources: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        for command in commands(replacements(sources, node)):
            run(command, tmp_path)
        (application,) = applications()
        unpacked = application / "0" / "env" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        place = unpacked / "site-packages" / "lmqcluster" / "__init__.py"
        with Client(node.rpc) as client:
            assert pulled(client, QUEUE) == [os.fsencode(place)] * ROWS


def replacements(sources: Path, node: NodeProcess) -> dict[str, str]:
    """Return what stands in for parts of the commands."""
    submit = Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit"
    options = " ".join(f"--conf '{name}={value}'" for name, value in SETTINGS.items())
    return {
        "python3.11": sys.executable,
        # Spark adds its own PySpark to every Python that it starts; a second one would only take time.
        "'.[spark]'": f"--no-deps --constraint {ROOT / '.constraints.txt'} {sources} msgpack pyarrow",
        "spark-submit --master yarn --deploy-mode cluster": f"{submit} --master 'local-cluster[1,1,768]' {options}",
        "job.py": f"job.py {node.rpc} {QUEUE}",
    }


def run(command: str, folder: Path) -> None:
    """Run a command of the page in a folder with the job."""
    (folder / "job.py").write_text(JOB, encoding="utf-8")
    environment = clean_environment({"SPARK_LOCAL_IP": "127.0.0.1"})
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
