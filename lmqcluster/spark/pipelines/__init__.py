"""The pipelines of ``lmq-pipeline`` on Spark: one module each, without a user interface.

``archive`` (queues to Parquet), ``replay`` (files to queues), ``migrate`` (queues to another cluster), ``dead_letters``
(inspect and return dead letters), ``report`` (statistics from the nodes' event journals) and ``watch`` (the same as a
stream) are functions of a Spark session and a frozen dataclass of settings. ``session`` creates the session,
``failures`` turns Spark's errors into one sentence, ``progress`` reports the progress of a query or its tasks. The data
source ``lmq`` connects to clusters.
"""
