"""Read from and write to queues in Spark: the PySpark data source ``lmq``.

    rows = spark.readStream.format("lmq").option("lmq.servers", "n1:18800,n2:18800").option("subscribe", "jobs").load()

Streaming reads are exactly once, see `stream_reader`. Writes store a row once however often Spark runs its task, see
`writer`. Batch reads remove nothing, see `batch_reader`. `reference` and `schema` describe the options and columns.
Spark finds the data source through the package ``pyspark_lmq``; without that package, call `register`. The package
needs the extra ``lmqcluster[spark]`` on the driver and on every executor, and builds on the client alone.
"""

try:
    import pyspark.sql.datasource  # noqa: F401
except ImportError as exc:
    raise ImportError(
        "lmqcluster.spark needs PySpark 4.0 or newer, and 4.2 or newer for reading streams: older releases have no data sources "
        f"written in Python ({exc})"
    ) from exc

from .base.errors import DataLossError, OptionError, SchemaError, TakenOverError
from .base.starting import start_query
from .data_source import LmqDataSource, register

__all__ = ["DataLossError", "LmqDataSource", "OptionError", "SchemaError", "TakenOverError", "register", "start_query"]
