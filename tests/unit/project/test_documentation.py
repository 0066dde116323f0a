"""Documented command lines are valid, links have targets, and the site lists every page."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from lmqcluster_chaos.cli import main as lmq_drill
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq
from lmqcluster_cli.pipeline.program import cli as lmq_pipeline

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "deploy", "lmqcluster", "chaos")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
TYPED = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""The pages with command lines; the changelog also names removed ones."""
COMMENTED = sorted(
    path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yaml", ".toml", ".env", ".service", ".txt"}
)
PROGRAMS: dict[str, click.Command] = {
    "lmq": lmq,
    "lmq-admin": lmq_admin,
    "lmq-pipeline": lmq_pipeline,
    "lmq-drill": lmq_drill,
}
_OPERATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "(", ")"}
_PROGRAM = re.compile(rf"(?:(?<![\w./-])|(?<=/bin/))({'|'.join(sorted(PROGRAMS, key=len, reverse=True))})(?= [a-z-])")
_NO_PROGRAM_FOLLOWS = ("-g ", "-o ", "-u ", "helm install ", "helm upgrade ")
"""After these words ``lmq`` is a group, a user or a release."""


class Line(NamedTuple):
    """A command line of a page."""

    place: str
    words: tuple[str, ...]


def typed(text: str) -> Iterator[str]:
    """Yield the text after a prompt in blocks of the language console, continuation lines joined, and inline code."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("$ ", "# ")):
                yield line[2:]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`([^`]+)`", prose):
        # "lmq-admin queue purge | move" names two commands.
        yield from _alternatives(" ".join(code.split()))


def _alternatives(code: str) -> list[str]:
    first, *others = code.split(" | ")
    if _PROGRAM.match(first) is None:
        return [first]
    return [first, *(f"{first.rpartition(' ')[0]} {other}" for other in others)]


def commands(path: Path) -> Iterator[Line]:
    """Yield every call of one of our programs on a page, up to the next operator of the shell."""
    text = path.read_text(encoding="utf-8")
    lines = typed(text) if path.suffix == ".md" else iter(text.replace("`", " ").splitlines())
    for line in lines:
        for match in _PROGRAM.finditer(line):
            if line[: match.start()].endswith(_NO_PROGRAM_FOLLOWS):
                continue
            try:
                scanner = shlex.shlex(line[match.start() :], posix=True, punctuation_chars=True)
                scanner.whitespace_split = True
                scanner.commenters = "#"
                words = list(scanner)
            except ValueError:
                # A quote that was opened before our program's name ends after it, as in "$(lmq-admin completion bash)".
                words = re.split(r"[)\"']", line[match.start() :])[0].split()
            stop = next(
                (n for n, word in enumerate(words) if word in _OPERATORS or set(word) <= {")", "("}), len(words)
            )
            yield Line(f"{path.relative_to(ROOT)}: {line}", tuple(words[:stop]))


ALL = [line for path in [*TYPED, *COMMENTED] for line in commands(path)]


@pytest.mark.parametrize("line", ALL, ids=[" ".join(line.words)[:60] for line in ALL])
def test_the_program_accepts_a_command_line(line: Line) -> None:
    program, *words = line.words
    command = PROGRAMS[program]
    context = click.Context(command, info_name=program)
    while True:
        words = [word for word in words if word != "..."]
        try:
            _values, words, _order = command.make_parser(context).parse_args(list(words))
        except click.UsageError as exc:
            if not isinstance(exc, click.MissingParameter):
                pytest.fail(f"{line.place}\n{exc.format_message()}")
            break
        if not isinstance(command, click.Group) or (not context.args and not words):
            break
        name, *words = words or [*context.args]
        found = command.get_command(context, name)
        if found is None:
            pytest.fail(f"{line.place}\n{context.command_path} has no command {name!r}")
        command = found
        context = click.Context(command, info_name=name, parent=context)


def test_there_are_command_lines() -> None:
    assert len(ALL) > 40


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_targets(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        assert page.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in headings(page), f"{path.name}: {target}"


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lists_and_tables_follow_an_empty_line(path: Path) -> None:
    """Without an empty line before them, the site's Markdown takes them for part of the paragraph."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines = text.splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"(?:[-*] |[0-9]+[.] )", line):
            assert not before or re.match(r"(?:[-*] |[0-9]+[.] | )", before), line
        elif line.startswith("|"):
            assert not before or before.startswith(("|", "<!--")), line


def test_the_navigation_of_the_site_names_every_page() -> None:
    navigation = (ROOT / ".mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md")]
    records = [page for page in pages if re.match(r"decisions/[0-9]", page)]
    assert records
    elsewhere = [page for page in named if (ROOT / page).exists() and not (docs / page).exists()]
    assert sorted(named) == sorted({*pages, *elsewhere} - {*records})


def test_the_index_of_the_documentation_links_every_page() -> None:
    docs = ROOT / "docs"
    for index in (docs / "README.md", docs / "decisions" / "README.md"):
        linked = set(re.findall(r"\]\(([^)#]+)\)", index.read_text(encoding="utf-8")))
        assert {page.name for page in index.parent.glob("*.md")} - {"README.md"} <= linked


def test_the_glossary_names_existing_code() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "lmqcluster").rglob("*.py")}
    code = "\n".join(sources.values())
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 50
    for name in names:
        if "/" in name:
            assert name.startswith("/v1/") or (ROOT / "lmqcluster" / name).exists(), name
        else:
            for word in name.split("."):
                assert re.search(rf"\b{word}\b", code), name
