"""A small Spark session for all modules of a test process, and a real three-node cluster for one module each."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from lmqcluster import Client
from lmqcluster.spark import register
from lmqcluster.spark.base.options import StreamRead
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.base.starting import retry_start
from lmqcluster.spark.reading.stream_reader import StreamReader
from tests.integration.cluster import Cluster

from .class_archive import submit_options
from .forked_python import forked_python
from .queues import NewReader

_numbers = itertools.count(1)
_TASK_ATTEMPTS = 3

# Programs that tests start inherit this.
os.environ.setdefault("SPARK_SUBMIT_OPTS", submit_options())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the warning of PySpark 4.3 about pandas 3.0 and later, which lmqcluster does not use."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(
                pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
            )


@pytest.fixture(autouse=True)
def patient_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts every query as documented for busy machines."""
    start = DataStreamWriter.start

    def start_patiently(writer: DataStreamWriter, *arguments: Any, **options: Any) -> StreamingQuery:
        return retry_start(lambda: start(writer, *arguments, **options))

    monkeypatch.setattr(DataStreamWriter, "start", start_patiently)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes; a test that kills one must restart it."""
    with Cluster(3, directory=tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> str:
    """The value of the option ``lmq.servers``."""
    return ",".join(cluster.rpc_addresses)


@pytest.fixture(scope="module")
def client(servers: str) -> Iterator[Client]:
    """A client of the cluster."""
    with Client(servers) as client:
        yield client


@pytest.fixture(scope="session", autouse=True)
def spark_python() -> Iterator[None]:
    """A forked Python for sessions and programs of these tests that do not choose another Python."""
    with (
        tempfile.TemporaryDirectory(prefix="lmq-python-") as name,
        forked_python(Path(name)) as program,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("PYSPARK_PYTHON", str(program))
        yield


@pytest.fixture(scope="session")
def spark(spark_python: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads that knows ``lmq``; a task may fail twice. It is shared: a test must unset
    what it sets.
    """
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # Without byte code Python may take longer to start than Spark waits.
        environment.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        builder = SparkSession.Builder().master(f"local[2,{_TASK_ATTEMPTS}]").appName("lmq")
        settings = {
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Rows pass from one Python function of a task to the next in small batches, as they arrive.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
            "spark.sql.shuffle.partitions": "2",
            # Compiling generated code takes most of the time if there are few rows. Programs that tests start generate
            # it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.python.authenticate.socketTimeout": "300s",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        register(session)
        yield session
        session.stop()


@pytest.fixture
def applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """A function that returns the folders of the applications that the test has run on a master ``local-cluster``, with
    a folder for each executor in them.

    The workers of such a master keep them in Spark's own folder. Each test has one, because tests run at the same time.
    """
    spark = tmp_path / "spark"
    spark.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (spark / part.name).symlink_to(part)
    monkeypatch.setenv("SPARK_HOME", str(spark))
    return lambda: list((spark / "work").glob("app-*"))


@pytest.fixture
def new_queue(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A function that returns a unique queue name."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:80]
    return lambda: f"{stem}-{next(_numbers)}"


@pytest.fixture
def queue(new_queue: Callable[[], str]) -> str:
    """A unique queue name."""
    return new_queue()


@pytest.fixture
def new_reader(servers: str, queue: str) -> Iterator[NewReader]:
    """A function that creates a reader of the test's queue, as a start of the query does."""
    with ExitStack() as readers:

        def make(schema: StructType | None = None, **options: str) -> StreamReader:
            given = {"lmq.servers": servers, "subscribe": queue, "lmq.subscription": queue, **options}
            given = {name: value for name, value in given.items() if value}
            reader = StreamReader(StreamRead.parse(given), schema or read_schema(Extras()))
            readers.callback(reader.stop)
            return reader

        yield make
