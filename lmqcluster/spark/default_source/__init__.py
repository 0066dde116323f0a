"""Installed as the package ``pyspark_lmq``, so that ``format("lmq")`` and SQL work without `register`.

Spark imports every package of such a name with a `DefaultSource` when a session first looks for a data source written
in Python, on the machine of the driver or of the Connect server.
"""

from lmqcluster.spark.data_source import LmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
