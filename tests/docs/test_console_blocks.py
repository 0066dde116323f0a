"""The command lines of the pages print what the pages show, on a real cluster."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, clean_environment

from . import http
from .conftest import ROOT, addresses_of
from .shell import Shell, Step, steps

RUN = {
    "README.md": (),
    "docs/access.md": ("TLS for clients",),
    "docs/admin.md": (),
    "docs/autoscaling.md": (),
    "docs/concepts.md": (),
    "docs/configuration.md": (),
    "docs/delivery.md": (),
    "docs/getting-started.md": (
        # These two have separate tests: test_secure_cluster and tests/integration/test_worked_example.py.
        "Three nodes with TLS and tokens",
        "A worked example: 336,776 flights and a dead node",
    ),
    "docs/properties.md": (),
    "docs/schedules.md": (),
}
"""The pages whose commands are executed, with the sections that are not."""
MAKES_TOKENS = ("docs/access.md",)
NOT_RUN = {
    "CONTRIBUTING.md": "make targets that run for minutes",
    "docs/alerts.md": "tests/integration/test_alerts_*.py follow each section while its alert fires",
    "docs/coming-from-sqs.md": "needs keys for Amazon; tests/sqs_clients runs its clients",
    **{f"docs/{page.name}": "tests/integration/test_docs_http.py runs them" for page in http.PAGES},
    "docs/containers.md": "needs Docker and Kubernetes",
    "docs/load-balancers.md": "needs a load balancer and separate machines",
    "docs/operations.md": "needs separate machines and systemd",
    "docs/production.md": "needs separate machines and systemd",
    "docs/releasing.md": "needs a commit without changes; tests/deploy/test_release.py runs its steps",
    "docs/tracing.md": "needs a collector; test_tracing_page runs the example",
    "docs/spark.md": "needs a cluster of Spark; tests/spark runs the pipelines, and packs an environment",
}
"""Pages of which only programs, commands and options are checked, by tests/unit/project/test_documentation.py."""
ELSEWHERE = re.compile(r"/etc/|/var/lib/|10\.0\.0\.|^(?:make|kubectl|helm) |\.venv/bin/activate| \.\.\.( |$)")
"""Lines for other machines, or for steps that the test has done already."""


def section_steps(page: str, left_out: tuple[str, ...]) -> list[Step]:
    """Return the commands of a page that are executed here."""
    sections = re.split(r"^## ", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    unknown = set(left_out) - {section.partition("\n")[0] for section in sections}
    assert not unknown, f"{page} has no section {unknown}"
    kept = [section for section in sections if section.partition("\n")[0] not in left_out]
    return [step for section in kept for step in steps(section) if not ELSEWHERE.search(step.command)]


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_print_what_it_shows(page: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    cluster: Cluster = request.getfixturevalue("new_cluster" if page in MAKES_TOKENS else "cluster")
    # The pages show a follower's view of the cluster: only a leader knows how far the others' logs are.
    leader = cluster.leader()
    follower = next(node for node in cluster if node is not leader)
    environment = {
        **clean_environment(),
        "LMQ_NODE": follower.http,
        "XDG_CONFIG_HOME": str(tmp_path / "configuration"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    todo = section_steps(page, RUN[page])
    assert todo
    with Shell(tmp_path, environment, addresses_of(cluster)) as shell:
        for step in todo:
            shell.check(step)


def test_every_page_with_commands_is_known() -> None:
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    found = {str(page.relative_to(ROOT)) for page in pages if list(steps(page.read_text(encoding="utf-8")))}
    assert found == RUN.keys() | NOT_RUN.keys()
    assert not RUN.keys() & NOT_RUN.keys()
