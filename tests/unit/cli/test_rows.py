"""Rows of CSV and JSON lines become messages; invalid ones are reported with their line."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

import click
import pytest
from lmqcluster_cli.admin.transfer.queue_template import QueueTemplate
from lmqcluster_cli.admin.transfer.row_source import open_source
from lmqcluster_cli.admin.transfer.rows import BadRow, Row, csv_rows, json_rows
from lmqcluster_cli.shared.errors import CliError

BY_ORIGIN = QueueTemplate.by_column("origin", "flights.")


def read_csv(text: str | bytes, template: QueueTemplate = BY_ORIGIN, delimiter: str = ",") -> list[Row | BadRow]:
    data = text.encode() if isinstance(text, str) else text
    return list(csv_rows(io.BytesIO(data), template, delimiter))


def read_json(text: str | bytes, template: QueueTemplate = BY_ORIGIN) -> list[Row | BadRow]:
    data = text.encode() if isinstance(text, str) else text
    return list(json_rows(io.BytesIO(data), template))


def test_a_csv_row_becomes_a_json_object_of_strings_in_header_order() -> None:
    [row] = read_csv("year,origin,name\n2013,EWR,Zürich\n")
    assert row == Row(2, b"flights.EWR", '{"year":"2013","origin":"EWR","name":"Zürich"}'.encode())


def test_csv_quoting_newlines_in_fields_and_line_numbers() -> None:
    rows = read_csv('origin,note\nA,"one\ntwo"\n\nB,"say ""hi"""\n')
    assert [(row.line, row.queue) for row in rows] == [(2, b"flights.A"), (5, b"flights.B")]
    assert json.loads(rows[0].content)["note"] == "one\ntwo"
    assert json.loads(rows[1].content)["note"] == 'say "hi"'


def test_tsv_byte_order_mark_and_crlf() -> None:
    [row] = read_csv("\ufefforigin\tn\r\nX\t1\r\n", delimiter="\t")
    assert row.content == b'{"origin":"X","n":"1"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"A", "1 fields where the header has 2"),
        (b"A,1,2", "3 fields where the header has 2"),
        (b",1", "column 'origin' is empty"),
        (b'"A"x,1', "not CSV"),
        (b"A,\xff", "not UTF-8"),
        (b"\xff,1", "not UTF-8"),
        (b"A\x01,1", "control characters"),
        (b"x" * 300 + b",1", "308 bytes; it must have 1 to 255"),
    ],
)
def test_bad_csv_rows_are_reported_and_skipped(line: bytes, reason: str) -> None:
    before, bad, after = read_csv(b"origin,n\nB,1\n" + line + b"\nC,2\n")
    assert isinstance(bad, BadRow)
    assert bad.line == 3
    assert reason in bad.reason
    assert isinstance(before, Row)
    assert after == Row(4, b"flights.C", b'{"origin":"C","n":"2"}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "header line"),
        ("orign,n\nA,1\n", "unknown column 'origin'; did you mean 'orign'"),
        ("a,b\n1,2\n", "unknown column 'origin'; the columns are a, b"),
        ("origin,n,n\nA,1,2\n", "names 'n' twice"),
    ],
)
def test_an_unusable_header_ends_the_replay(text: str, reason: str) -> None:
    with pytest.raises(CliError, match=reason) as caught:
        read_csv(text)
    assert caught.value.exit_code == 65


def test_a_json_line_stays_unchanged() -> None:
    rows = read_json('{"origin": "EWR",  "n": 1.50}\n\n{"origin":7}\r\n{"origin":true}')
    assert rows == [
        Row(1, b"flights.EWR", b'{"origin": "EWR",  "n": 1.50}'),
        Row(3, b"flights.7", b'{"origin":7}'),
        Row(4, b"flights.true", b'{"origin":true}'),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON: Expecting property name"),
        (b"[1]", "not a JSON object"),
        (b'{"n":1}', "column 'origin' is missing"),
        (b'{"origin":null}', "column 'origin' is NoneType"),
        (b'{"origin":{}}', "column 'origin' is dict"),
        (b'{"origin":""}', "column 'origin' is empty"),
        (b'{"origin":"\xff"}', "not UTF-8"),
        (b'{"origin":"\\ud800"}', "not UTF-8"),
        (b"[" * 100_000, ""),
    ],
)
def test_bad_json_lines_are_reported_and_skipped(line: bytes, reason: str) -> None:
    bad, after = read_json(line + b'\n{"origin":"C"}\n')
    assert isinstance(bad, BadRow)
    assert bad.line == 1
    assert reason in bad.reason
    assert after == Row(2, b"flights.C", b'{"origin":"C"}')


def test_too_large_rows_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmqcluster_cli.admin.transfer.rows.MESSAGE_BYTES_MAX", 20)
    [bad, good] = read_json('{"origin":"A","n":"12345"}\n{"origin":"B"}\n')
    assert isinstance(bad, BadRow)
    assert "exceed the maximum size of a message" in bad.reason
    assert isinstance(good, Row)
    monkeypatch.setattr("lmqcluster_cli.admin.transfer.rows.LINE_BYTES_MAX", 25)
    with pytest.raises(CliError, match="line 1 is longer than 25 bytes"):
        read_json('{"origin":"A","n":"12345"}\n')


@pytest.mark.parametrize(
    ("template", "columns", "values", "name"),
    [
        ("flights.{origin}", ["origin"], ("EWR",), b"flights.EWR"),
        ("{a}-{b}", ["a", "b"], ("1", "2"), b"1-2"),
        ("all", [], (), b"all"),
        ("{{x}}{a}/end", ["a"], ("1",), b"{x}1/end"),
        ("{dep.time}", ["dep.time"], ("5",), b"5"),
    ],
)
def test_queue_templates(template: str, columns: list[str], values: tuple[str, ...], name: bytes) -> None:
    parsed = QueueTemplate.parse(template)
    assert parsed.columns == columns
    assert parsed.name(values) == name
    assert parsed.name(values) == name, "the second time from the cache"


@pytest.mark.parametrize("template", ["{}", "{a", "a}", "{a!r}", "{a:>3}"])
def test_malformed_queue_templates(template: str) -> None:
    with pytest.raises(ValueError, match=r"column|brace|\}|expected"):
        QueueTemplate.parse(template)


def test_a_template_without_columns_may_not_be_empty() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        QueueTemplate.parse("").name(())


def test_plain_gzip_and_zip_files_give_the_same_rows(tmp_path: Path) -> None:
    text = b"origin,n\nA,1\n"
    plain, packed, zipped = tmp_path / "x.csv", tmp_path / "x.csv.gz", tmp_path / "whatever.zip"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("x.CSV", text)
    for path in (plain, packed, zipped):
        with open_source(str(path), None) as source:
            assert source.form == "csv"
            assert list(csv_rows(source.stream, BY_ORIGIN)) == [Row(2, b"flights.A", b'{"origin":"A","n":"1"}')]
            assert source.position() == source.bytes_total


@pytest.mark.parametrize(
    ("name", "form"), [("a.tsv", "tsv"), ("a.jsonl", "jsonl"), ("a.ndjson", "jsonl"), ("a.json.gz", "jsonl")]
)
def test_the_format_is_derived_from_the_name(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    with open_source(str(tmp_path / name), None) as source:
        assert source.form == form


def test_an_unknown_format_must_be_given(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"")
    with pytest.raises(click.UsageError, match="pass --format"), open_source(str(path), None):
        pass
    with open_source(str(path), "csv") as source:
        assert source.form == "csv"


def test_files_that_cannot_be_opened_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="No such file"), open_source(str(tmp_path / "absent.csv"), None):
        pass
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "")
        archive.writestr("b.csv", "")
    with pytest.raises(click.UsageError, match="contains 2 files"), open_source(str(tmp_path / "two.zip"), None):
        pass


@pytest.mark.parametrize("cut", [10, -20])
def test_damaged_archives_are_bad_data(tmp_path: Path, cut: int) -> None:
    packed = tmp_path / "x.csv.gz"
    packed.write_bytes(gzip.compress(b"origin\n" + b"A\n" * 1000)[:cut])
    with pytest.raises(CliError, match="is damaged") as caught, open_source(str(packed), None) as source:
        list(csv_rows(source.stream, BY_ORIGIN))
    assert caught.value.exit_code == 65


def test_a_zip_member_with_a_wrong_checksum_is_bad_data(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.csv", "origin\nABCDEF\n")
    path.write_bytes(path.read_bytes().replace(b"ABCDEF", b"ABCDEG"))
    with pytest.raises(CliError, match="is damaged"), open_source(str(path), None) as source:
        list(csv_rows(source.stream, BY_ORIGIN))
