"""Files on Spark's file systems: a local disk, HDFS or an object store, through Hadoop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from .failures import USAGE, PipelineError
from .session import has_jvm

__all__ = ["Storage", "StoredFile"]


class StoredFile(NamedTuple):
    """A file: its full path, its size, and its modification time in seconds since the Unix epoch."""

    path: str
    size_bytes: int
    written_s: float

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]


class Storage:
    """The file system of a path. Paths are absolute, as `find` returns them, or relative to the working directory."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Open the file system.

        Raises:
            PipelineError: the session has no JVM, so that its file systems are not accessible.
        """
        if not has_jvm(spark):
            raise PipelineError(
                f"{path} is not accessible over Spark Connect: run this command where Spark runs, with --master",
                USAGE,
            )
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._uri: Any = jvm.java.net.URI
        configuration = context._jsc.hadoopConfiguration()
        self._files: Any = self._path(path).getFileSystem(configuration)
        self.root: str = self._files.makeQualified(self._path(path)).toString()

    def find(self, pattern: str) -> list[StoredFile]:
        """Return the files that match a Hadoop glob below the root, sorted by path."""
        # The root may contain characters that are special in a glob; they are escaped.
        found = self._files.globStatus(self._path(f"{_escape(self.root)}/{pattern}"))
        files = [
            StoredFile(status.getPath().toString(), status.getLen(), status.getModificationTime() / 1000)
            for status in found or ()
            if status.isFile()
        ]
        return sorted(files)

    def status(self, paths: Iterable[str]) -> list[StoredFile]:
        """Return files by their paths, which may be URIs."""
        found = [self._files.getFileStatus(self._path(self._uri(path))) for path in paths]
        return [StoredFile(one.getPath().toString(), one.getLen(), one.getModificationTime() / 1000) for one in found]

    def rename(self, source: str, target: str) -> None:
        """Move a file; replace an existing one.

        Raises:
            OSError: it was not moved.
        """
        to = self._path(target)
        self._files.mkdirs(to.getParent())
        self._files.delete(to, False)
        if not self._files.rename(self._path(source), to):
            raise OSError(f"{source} could not be renamed to {target}")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content. A no-op if it does not exist."""
        self._files.delete(self._path(path), True)

    def exists(self, path: str) -> bool:
        """Return whether the file or directory exists."""
        return bool(self._files.exists(self._path(path)))

    def read_text(self, path: str) -> str:
        """Return the content of a small text file."""
        stream = self._files.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file; it appears complete or not at all."""
        unfinished = f"{path}.unfinished"
        stream = self._files.create(self._path(unfinished), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.rename(unfinished, path)


def _escape(path: str) -> str:
    return "".join(f"\\{character}" if character in "*?[]{}\\" else character for character in path)
