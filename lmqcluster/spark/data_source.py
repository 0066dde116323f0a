"""The data source ``lmq``: creates readers and writers for Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pyspark import __version__ as spark_version
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from .base.errors import OptionError
from .base.options import BatchRead, StreamRead, Write, check_common
from .base.python_program import check_python
from .base.schema import check_read_schema, check_write_schema, read_schema
from .reading.batch_reader import PeekReader
from .writing.writer import BatchWriter

if TYPE_CHECKING:
    from .reading.stream_reader import StreamReader
    from .writing.stream_writer import StreamWriter

__all__ = ["LmqDataSource", "register"]

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


class LmqDataSource(DataSource):
    """Queues of an lmqcluster as a source and sink of Spark. The modules `options` and `schema` describe options and
    columns.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "lmq"

    def schema(self) -> StructType:
        """Return the columns of a read.

        Raises:
            OptionError: an option is missing, unknown or out of range.
        """
        return read_schema(check_common(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``.

        Raises:
            OptionError: an option is missing, unknown, out of range, or not for batch reads.
            SchemaError: the user's schema cannot be read.
        """
        options = BatchRead.parse(self.options)
        check_read_schema(schema, options.extras)
        return PeekReader(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return the reader for ``spark.readStream``.

        Raises:
            OptionError: an option is missing, unknown, out of range, or not for streaming reads.
            SchemaError: the user's schema cannot be read.
            NotImplementedError: this release of Spark cannot read streams of queues.
        """
        try:
            from .reading.stream_reader import StreamReader  # noqa: PLC0415
        except ImportError as exc:
            raise _missing(
                "readStream", "4.2", "use foreachBatch of another source, or read with lmqcluster.Client", exc
            ) from exc
        options = StreamRead.parse(self.options)
        check_read_schema(schema, options.extras)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer for ``DataFrame.write``.

        Raises:
            OptionError: an option is missing, unknown, out of range, or not for writes; the mode is not append.
            SchemaError: the data frame has columns that cannot be written.
        """
        if overwrite:
            raise OptionError("mode", "of a write must be append: messages in a queue are not replaced")
        return BatchWriter(self._write(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer for ``DataFrame.writeStream``.

        Raises:
            OptionError: an option is missing, unknown, out of range, or not for writes; the output mode is complete.
            SchemaError: the data frame has columns that cannot be written.
            NotImplementedError: this release of Spark cannot write streams to queues.
        """
        try:
            from .writing.stream_writer import StreamWriter  # noqa: PLC0415
        except ImportError as exc:
            raise _missing(
                "writeStream", "4.1", "write in foreachBatch, with lmq.application and lmq.epoch", exc
            ) from exc
        if overwrite:
            raise OptionError("outputMode", "must be append or update: messages in a queue are not replaced")
        options = self._write(schema)
        if options.application is not None:
            raise OptionError("lmq.application", "is for batch writes: a streaming write is identified by its query")
        return StreamWriter(options)

    def _write(self, schema: StructType) -> Write:
        options = Write.parse(self.options)
        check_write_schema(schema, queue_option=options.queue is not None)
        return options


def _missing(what: str, release: str, advice: str, error: ImportError) -> NotImplementedError:
    return NotImplementedError(
        f"lmq: {what} needs PySpark {release} or newer, this is {spark_version} ({error}). Instead, {advice}; or update PySpark."
    )


def register(spark: SparkSession) -> None:
    """Register ``format("lmq")`` in a session, and enable filter pushdown. The executors need lmqcluster installed too.

    Filters are pushed down unless the session has set ``spark.sql.python.filterPushdown.enabled`` to false.

    Raises:
        ImportError: the Python that Spark starts lacks lmqcluster, and ``PYSPARK_PYTHON`` does not choose another one.
    """
    # Over Spark Connect, the server starts the processes.
    context = getattr(spark, "sparkContext", None)
    if context is not None and "PYSPARK_PYTHON" not in os.environ:
        check_python(context.pythonExec)
    spark.dataSource.register(LmqDataSource)
    if spark.conf.get(_PUSHDOWN, None) is None:
        spark.conf.set(_PUSHDOWN, "true")
