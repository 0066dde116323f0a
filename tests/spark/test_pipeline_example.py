"""The worked example on a slice: real flights arrive in a table once each, although a node and the query are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.cluster import Cluster

from .flights import FLIGHTS, PUBLISHED, figures_of_csv, figures_of_table, flights_csv
from .flights_example import land_flights

ROWS = 10_000


def test_every_flight_arrives_once_although_a_node_and_the_query_are_killed(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flights, table = flights_csv(tmp_path / "flights.csv", ROWS), tmp_path / "table"
    land_flights(cluster, flights, ROWS, table, print)
    assert "Traceback" not in capfd.readouterr().err
    assert len(cluster.alive) == 2
    rows = spark.read.parquet(str(table))
    assert rows.count() == rows.select("offset").distinct().count() == ROWS
    assert figures_of_table(spark, table) == figures_of_csv(flights)


def test_the_whole_table_has_the_published_figures(tmp_path: Path) -> None:
    flights = flights_csv(tmp_path / "flights.csv")
    assert figures_of_csv(flights) == PUBLISHED
    assert sum(origin.flights for origin in PUBLISHED.origins.values()) == FLIGHTS
