"""Pipelines on Spark that people run through ``lmq-pipeline``: one module each, all without a user interface.

``archive`` (queues to Parquet), ``replay`` (files to queues), ``migrate`` (queues to another cluster), ``dead_letters`` (what
failed, and sending it back), ``report`` (figures from the nodes' event journals) and ``watch`` (the same as a stream) are
functions of a Spark session and a frozen dataclass of settings. ``session`` makes the session, ``failures`` turns what Spark
raises into one sentence, ``progress`` says how far a query or its tasks are. The data source ``lmq`` talks to clusters.
"""
